"""A relay before a server, which a test can have cut a connection, or hold back what is sent."""

import contextlib
import math
import socket
import threading
from collections.abc import Callable, Iterator


class Relay:
    """Passes bytes on to a port. Once it is `armed`, the answer to the word does not come back.

    To the server go at most `room` bytes, over all connections; `raise_to` gives more.
    """

    def __init__(self, port: int, word: bytes = b"", room: float = math.inf) -> None:
        self._target = ("127.0.0.1", port)
        self._word = word
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.armed = False
        self._cuts = False
        self._room = room
        self._sent = 0
        self._turn = threading.Condition()
        self._servers: list[socket.socket] = []

    def run(self) -> None:
        """Serve until `close`."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except ConnectionRefusedError:
                    client.close()  # as whoever is not there would have refused it
                    continue
                self._servers.append(server)
                self._begin(client, server, lambda data, to=server: self._send_in_turn(to, data))
                self._begin(server, client, client.sendall)

    def aim(self, port: int) -> None:
        """New connections go to another port from now on."""
        self._target = ("127.0.0.1", port)

    def raise_to(self, room: float) -> None:
        """Let so many bytes in all through to the server."""
        with self._turn:
            self._room = room
            self._turn.notify_all()

    def await_full(self, patience: float = 60.0) -> None:
        """Until as much has gone to the server as may."""
        with self._turn:
            assert self._turn.wait_for(lambda: self._sent >= self._room, patience), self._sent

    def hang_up(self) -> None:
        """End all connections to the server, as those of a client that is killed end."""
        while self._servers:
            with contextlib.suppress(OSError):
                self._servers.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take no more connections, and hold nothing back."""
        self.raise_to(math.inf)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _begin(self, start: socket.socket, end: socket.socket, send: Callable[..., None]) -> None:
        threading.Thread(target=self._pass_on, args=(start, end, send), daemon=True).start()

    def _pass_on(self, start: socket.socket, end: socket.socket, send: Callable[..., None]) -> None:
        with contextlib.suppress(OSError):
            while data := start.recv(65536):
                if self._cuts:  # this is the answer to the word
                    self._cuts = False
                    end.shutdown(socket.SHUT_RDWR)
                    break
                if self.armed and self._word in data:
                    self.armed, self._cuts = False, True
                send(data)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_WR)

    def _send_in_turn(self, server: socket.socket, data: bytes) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._sent < self._room)
        server.sendall(data)
        with self._turn:
            self._sent += len(data)
            self._turn.notify_all()


@contextlib.contextmanager
def relay(port: int, word: bytes = b"", room: float = math.inf) -> Iterator[Relay]:
    """A relay in a thread of its own."""
    made = Relay(port, word, room)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.close()
        thread.join()
