"""Ports of local Tritons."""

import random
import socket
from contextlib import ExitStack

from serve.triton.ports import LOOPBACK, LOWEST, free_ports


def test_ports_are_different_and_outside_the_ephemeral_range() -> None:
    ports = free_ports(30, random.Random(1).random, ephemeral=LOWEST + 1000)
    assert len(set(ports)) == 30
    assert all(LOWEST <= port < LOWEST + 1000 for port in ports)


def test_a_port_that_is_taken_is_passed_over() -> None:
    first = free_ports(1, random.Random(2).random)
    with socket.create_server((LOOPBACK, first[0])):
        second = free_ports(1, random.Random(2).random)
    assert second != first


def test_the_kernel_chooses_when_there_is_no_room_or_every_drawn_port_is_taken() -> None:
    assert len(set(free_ports(3, random.Random(3).random, ephemeral=1024))) == 3
    with ExitStack() as held:
        for port in range(LOWEST, LOWEST + 3):
            listener = held.enter_context(socket.socket())
            listener.bind((LOOPBACK, port))
        ports = free_ports(2, random.Random(4).random, ephemeral=LOWEST + 3)
    assert all(port >= LOWEST + 3 for port in ports)


def test_a_port_that_was_given_to_another_is_not_given_again() -> None:
    room = LOWEST + 4
    ports = free_ports(3, random.Random(5).random, ephemeral=room)
    [other] = free_ports(1, random.Random(5).random, besides=set(ports), ephemeral=room)
    assert other not in ports
