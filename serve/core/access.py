"""Access: who calls, and what they may do. One decision for every listener and both planes.

A key is shown once, as `sg_<id>_<secret>`; what is kept is its id and the SHA-256 of its secret.

| role      | data plane                                        | admin plane |
|-----------|---------------------------------------------------|-------------|
| predictor | calls of and questions about models that it names | nothing     |
| admin     | the same, and management                          | everything  |

What a key may not see does not exist for it: it hears what it would hear of a name that nobody
has ever given to a model.
"""

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from serve.core.errors import Forbidden, Invalid, Unauthenticated, UnknownModel

_KEY = re.compile(rb"(?i:bearer) +sg_([a-z0-9]{4,32})_([A-Za-z0-9_-]{16,128})\s*")
_OURS = re.compile(rb"(?:.*\s)?sg_[a-z0-9]+_", re.DOTALL)
_ID = re.compile(r"[a-z0-9]{4,32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
OWN = "servegate"  # the id of a key that nobody has made; made ones are hexadecimal
_ID_BYTES = 5
_SECRET_BYTES = 32
_REMEMBERED = 4096  # credentials, and decisions
_LONGEST_NAME = 255  # of a model; longer ones are not worth their memory


class Role(StrEnum):
    """What a key is for."""

    PREDICTOR = "predictor"
    ADMIN = "admin"


class Act(StrEnum):
    """What somebody wants to do."""

    ASK = "ask"  # of the server as a whole; whoever has a key may
    CALL = "call"  # a model: predictions, and questions about it
    MANAGE = "manage"  # models, or the server: load and unload, trace and log settings
    ADMINISTER = "administer"  # anything on the admin API


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One API key as it is kept. `models` are shell patterns; `expires` is seconds of the epoch."""

    id: str
    digest: str
    role: Role
    models: tuple[str, ...] = ("*",)
    expires: float | None = None

    def __post_init__(self) -> None:
        """`Invalid` for what was never a key."""
        if not (_ID.fullmatch(self.id) and _DIGEST.fullmatch(self.digest)):
            raise Invalid(f"'{self.id}' is not a valid API key")
        if not self.models or not all(self.models):
            raise Invalid(f"key '{self.id}' permits no models", try_this="use the pattern '*'")
        if self.expires is not None and not math.isfinite(self.expires):
            raise Invalid(f"the expiry time {self.expires} of key '{self.id}' is not valid")

    @classmethod
    def create(
        cls, role: Role, models: tuple[str, ...] = ("*",), expires: float | None = None
    ) -> tuple["ApiKey", str]:
        """A new key, and the words that its owner has to show: they are kept nowhere."""
        identity, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        return cls(identity, digest_of(secret.encode()), role, models, expires), (
            f"sg_{identity}_{secret}"
        )

    @classmethod
    def derived(cls, secret: str) -> tuple["ApiKey", str]:
        """The control plane's own key for the data plane, of the secret that both know; its words.

        Every process that knows the secret derives the same one, so nobody has to keep it.
        """
        words = hmac.new(secret.encode(), b"the control plane's key", hashlib.sha256).hexdigest()
        return cls(OWN, digest_of(words.encode()), Role.PREDICTOR), f"sg_{OWN}_{words}"

    def sees(self, model: str) -> bool:
        """Whether this model exists for the key."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)


def digest_of(secret: bytes) -> str:
    """What is kept of a secret. It is random and long, so a fast hash is as good as a slow one."""
    return hashlib.sha256(secret).hexdigest()


def is_ours(credential: bytes) -> bool:
    """Whether an Authorization value holds a key of ours, however said: no Triton may see it."""
    return _OURS.match(credential) is not None


def may(key: ApiKey, act: Act, model: str = "") -> bool:
    """The decision: whether the key's owner may do this, on this model where one is named."""
    if act in (Act.ADMINISTER, Act.MANAGE) and key.role is not Role.ADMIN:
        return False
    return not model or key.sees(model)


class Access:
    """The keys of one snapshot. `is_required` says whether a key is needed at all.

    `remembered` bounds how many good credentials, and decisions, are kept at hand.
    """

    def __init__(
        self,
        keys: Mapping[str, ApiKey],
        *,
        is_required: bool,
        wall: Callable[[], float],
        remembered: int = _REMEMBERED,
    ) -> None:
        self.is_required = is_required
        self._keys = keys
        self._wall = wall  # seconds since the epoch
        self._remembered = remembered
        self._known: dict[bytes, ApiKey] = {}  # credentials that were found to be good
        self._called: dict[tuple[bytes, str], ApiKey] = {}  # who may call what

    def __repr__(self) -> str:
        return f"<Access {len(self._keys)} keys, required={self.is_required}>"

    @property
    def remembers(self) -> tuple[int, int]:
        """How many credentials, and how many decisions, are at hand."""
        return len(self._known), len(self._called)

    def who(self, credential: bytes) -> ApiKey | None:
        """The key behind an Authorization value; None when none is needed. `Unauthenticated`."""
        if not self.is_required:
            return None
        key = self._known.get(credential)
        if key is None:
            key = self._verified(credential)
        if key.expires is not None and key.expires <= self._wall():
            raise Unauthenticated()
        return key

    def check(self, credential: bytes, act: Act, model: str = "") -> ApiKey | None:
        """The key, when it allows this; `Unauthenticated`, `Forbidden`, or `UnknownModel`."""
        key = self._called.get((credential, model)) if act is Act.CALL else None
        if key is not None and (key.expires is None or key.expires > self._wall()):
            return key
        key = self.who(credential)
        if key is None:
            return None
        if not may(key, act):
            what = "not an admin key" if act is Act.ADMINISTER else f"not allowed to {act}"
            raise Forbidden(f"key '{key.id}' is {what}", why=f"its role is '{key.role}'")
        if not may(key, act, model):
            raise UnknownModel(model)
        if act is Act.CALL and len(model) <= _LONGEST_NAME:
            if len(self._called) >= self._remembered:
                self._called.clear()
            self._called[credential, model] = key
        return key

    def _verified(self, credential: bytes) -> ApiKey:
        match = _KEY.fullmatch(credential)
        if match is None:
            raise Unauthenticated()
        digest = digest_of(match[2])
        key = self._keys.get(match[1].decode())
        if not hmac.compare_digest(digest, key.digest if key else "0" * 64) or key is None:
            raise Unauthenticated()
        if len(self._known) >= self._remembered:
            self._known.clear()
        self._known[credential] = key
        return key
