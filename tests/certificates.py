"""Certificates for tests: an authority of their own, and files in which they lie."""

from datetime import datetime, timedelta
from pathlib import Path

import trustme


class Authority:
    """Signs certificates and writes them down, each as NAME.pem and NAME.key."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.folder = folder
        self.path = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.path))

    def issue(
        self,
        name: str,
        host: str = "localhost",
        *,
        begins: datetime | None = None,
        ends: datetime | None = None,
    ) -> tuple[Path, Path]:
        """A chain for this host and its key."""
        made = self._ca.issue_cert(
            host,
            "127.0.0.1",
            not_before=begins or datetime(2000, 1, 1),
            not_after=ends or datetime(2100, 1, 1),
        )
        chain, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        chain.write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        return chain, key


def days(number: float) -> datetime:
    """That many days from today."""
    return datetime.now() + timedelta(days=number)
