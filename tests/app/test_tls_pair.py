"""A certificate and its key: what is read of them, and what is said of those that do not go."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from certificates import Authority
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from serve.app.tls_pair import Pair, certificates, day
from serve.core.errors import CannotStart


def test_the_dates_of_a_certificate_are_read(authority: Authority) -> None:
    for begins, ends in (
        (datetime(1999, 12, 31, 23, 59, 59), datetime(2049, 12, 31, 12, 30)),  # UTCTime
        (datetime(2050, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),  # GeneralizedTime
        (datetime(1970, 1, 1), datetime(2050, 1, 1)),  # one of each
    ):
        pair = Pair.read(*authority.issue("one", begins=begins, ends=ends))
        assert pair.begins == begins.replace(tzinfo=UTC).timestamp()
        assert pair.ends == ends.replace(tzinfo=UTC).timestamp()


def test_a_chain_is_valid_only_while_all_of_it_is(authority: Authority) -> None:
    first, key = authority.issue("first", ends=datetime(2040, 1, 1))
    second, _ = authority.issue("second", begins=datetime(2020, 1, 1), ends=datetime(2030, 1, 1))
    first.write_bytes(b"a word before\n" + first.read_bytes() + second.read_bytes())
    pair = Pair.read(first, key)
    assert (day(pair.begins), day(pair.ends)) == ("2020-01-01 00:00 UTC", "2030-01-01 00:00 UTC")
    assert len(certificates(pair.chain)) == 2


def test_the_pair_is_what_was_read_even_of_one_file_whatever_becomes_of_it(
    authority: Authority,
) -> None:
    chain, key = authority.issue("one")
    chain.write_bytes(chain.read_bytes().rstrip() + b"\n" + key.read_bytes())
    pair = Pair.read(chain, chain)
    chain.unlink()
    pair.give_to(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def refused(chain: Path, key: Path) -> str:
    with pytest.raises(CannotStart) as caught:
        Pair.read(chain, key)
    return str(caught.value)


def test_what_is_wrong_with_the_files_is_named(authority: Authority, tmp_path: Path) -> None:
    chain, key = authority.issue("one")
    _, other = authority.issue("other")
    nowhere, garbage = tmp_path / "nowhere", tmp_path / "garbage"
    garbage.write_bytes(b"\x00\xff no key")
    for given_chain, given_key, words in (
        (nowhere, key, f"the certificate {nowhere} cannot be read: No such file"),
        (chain, nowhere, f"the private key {nowhere} cannot be read: No such file"),
        (chain, other, f"the private key {other} does not belong to the certificate {chain}"),
        (key, key, f"{key} contains no certificate"),
        (chain, garbage, "cannot be used"),
    ):
        assert words in refused(given_chain, given_key)


def test_a_certificate_that_is_cut_off_is_refused(authority: Authority) -> None:
    chain, key = authority.issue("one")
    lines = chain.read_text().splitlines()
    end = lines.index("-----END CERTIFICATE-----")
    for kept in (2, 3, end - 1):
        chain.write_text("\n".join((*lines[:kept], lines[end])))
        assert str(chain) in refused(chain, key)


def test_an_encrypted_key_is_refused_without_asking_for_its_password(
    authority: Authority,
) -> None:
    chain, key = authority.issue("one")
    secret = load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        secret.private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"word")
        )
    )
    assert "the private key is encrypted" in refused(chain, key)
