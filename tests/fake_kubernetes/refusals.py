"""What the API says when it does not do what it was asked: Status objects, in Kubernetes' words."""

from typing import Any

from fake_kubernetes.kinds import Kind

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Refusal(Exception):
    """A request that failed, and the Status that says so."""

    def __init__(
        self, code: int, message: str, *, reason: str = "", details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason or _REASONS.get(code, "Unknown"),
            "details": details or {},
            "code": code,
        }


def details_of(kind: Kind, name: str, **more: Any) -> dict[str, Any]:
    """Which object a Status is about."""
    group = {"group": kind.group} if kind.group else {}
    return {"name": name, **group, "kind": kind.plural, **more}


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(404, f'{kind.resource} "{name}" not found', details=details_of(kind, name))


def already_exists(kind: Kind, name: str) -> Refusal:
    message = f'{kind.resource} "{name}" already exists'
    return Refusal(409, message, reason="AlreadyExists", details=details_of(kind, name))


def conflict(kind: Kind, name: str) -> Refusal:
    message = (
        f'Operation cannot be fulfilled on {kind.resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return Refusal(409, message, details=details_of(kind, name))


def invalid(kind: Kind, name: str, field: str, message: str) -> Refusal:
    qualified = f"{kind.name}.{kind.group}" if kind.group else kind.name
    causes = [{"reason": "FieldValueInvalid", "message": message, "field": field}]
    return Refusal(
        422,
        f'{qualified} "{name}" is invalid: {field}: {message}',
        details={**details_of(kind, name, causes=causes), "kind": kind.name},
    )


def too_old(asked: int, oldest: int) -> Refusal:
    return Refusal(410, f"too old resource version: {asked} ({oldest})")


def continue_too_old() -> Refusal:
    return Refusal(
        410,
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter.",
    )


def unknown_path() -> Refusal:
    return Refusal(404, "the server could not find the requested resource")


def of_code(code: int) -> Refusal:
    """What a server says that answers nothing but this."""
    words = {
        401: "Unauthorized",
        403: 'forbidden: User "system:anonymous" cannot do this',
        429: "Too many requests, please try again later.",
        503: "the server is currently unable to handle the request",
    }
    details = {"retryAfterSeconds": 1} if code in (429, 503) else {}
    return Refusal(code, words.get(code, "the server was told to refuse"), details=details)
