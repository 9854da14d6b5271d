"""Sessions of the web UI: a cookie that stands for an admin key, and for nothing once that is gone.

The cookie is `<subject>.<end>.<signature>`. The subject is the id of a key, or `local` for who
knows the shared secret; the end is in seconds of the epoch; the signature is an HMAC under the
shared secret over both and the key's digest. So nothing is stored, every control plane understands
it, and a key that is revoked or made anew ends its sessions.
"""

import hashlib
import hmac
from collections.abc import Mapping

from serve.core.access import ApiKey, Role

COOKIE = "servegate_session"
LASTS = 12 * 3600  # seconds
LOCAL = "local"


def session_of(key: ApiKey | None, *, secret: str, now: float) -> str:
    """The cookie for a key that was shown, or for the shared secret (None)."""
    end = int(now) + LASTS
    if key is not None and key.expires is not None:
        end = min(end, int(key.expires))
    subject = LOCAL if key is None else key.id
    return f"{subject}.{end}.{_signature(subject, end, key, secret)}"


def is_valid(
    cookie: str, keys: Mapping[str, ApiKey], *, secret: str, now: float
) -> tuple[bool, ApiKey | None]:
    """Whether a cookie lets its bearer in, and as which key; None stands for the shared secret."""
    subject, _, rest = cookie.partition(".")
    end, _, signature = rest.partition(".")
    key = keys.get(subject)
    if not (end.isascii() and end.isdigit() and len(end) < 15 and signature.isascii()):
        return False, None
    if subject != LOCAL and (key is None or key.role is not Role.ADMIN):
        return False, None
    if key is not None and key.expires is not None and key.expires <= now:
        return False, None
    wanted = _signature(subject, int(end), key, secret)
    return hmac.compare_digest(signature, wanted) and now < int(end), key


def _signature(subject: str, end: int, key: ApiKey | None, secret: str) -> str:
    said = f"session|{subject}|{end}|{key.digest if key else ''}"
    return hmac.new(secret.encode(), said.encode(), hashlib.sha256).hexdigest()
