"""The error tree: what went wrong, built from nouns; the rim translates it into status codes.

Every error knows three sentences: what happened, why, and what to try. `code` is stable: scripts,
metrics and documentation refer to it. Which HTTP or gRPC status an error becomes is decided in one
place, `wire/status.py`; which exit code, in `cli`.
"""

from collections.abc import Iterable


class ServegateError(Exception):
    """Any other error."""

    code = "error"

    def __init__(self, what: str, *, why: str = "", try_this: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.try_this = try_this

    def __str__(self) -> str:
        """All of it on one line: `what: why. Try: try_this`."""
        text = self.what
        if self.why:
            text += f": {self.why}"
        if self.try_this:
            text += f". Try: {self.try_this}"
        return text


# --- the request is wrong ------------------------------------------------------------------------


class BadRequest(ServegateError):
    """The request is malformed."""

    code = "bad_request"


class Unparsable(BadRequest):
    """The gRPC message is not valid protobuf. The message begins like Triton's."""

    code = "unparsable"

    def __init__(self, why: str) -> None:
        super().__init__("Unable to parse request", why=why)


class WrongJson(BadRequest):
    """A management request has invalid JSON or a value of the wrong type. Triton also sends 500."""

    code = "wrong_json"


class BodyTooLarge(BadRequest):
    """The request body is larger than `max_body_bytes`."""

    code = "body_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the request body exceeds {limit} bytes",
            try_this="use smaller batches, or raise the setting max_body_bytes",
        )


class InflatedTooLarge(BodyTooLarge):
    """The decompressed body exceeds `max_inflated_bytes`, or the permitted compression ratio."""

    code = "inflated_too_large"

    def __init__(self, limit: int) -> None:
        ServegateError.__init__(
            self,
            f"the request body exceeds {limit} bytes after decompression",
            try_this="use smaller batches or no compression, or raise the setting "
            "max_inflated_bytes",
        )


class ConversionTooLarge(BodyTooLarge):
    """Translating the body between protocols would need more memory than is allowed."""

    code = "conversion_too_large"

    def __init__(self, size: int, limit: int) -> None:
        ServegateError.__init__(
            self,
            f"converting the request would need {size} bytes of memory, and the limit is {limit}",
            why="its JSON or its message has to be parsed",
            try_this="use smaller batches, or binary tensors over KServe v2, or raise the "
            "setting max_in_flight_bytes",
        )


class TooMuchJson(BodyTooLarge):
    """JSON that the gateway must parse (for a sequence id or a management request) is too large."""

    code = "too_much_json"

    def __init__(self, values: int, size: int) -> None:
        ServegateError.__init__(
            self,
            f"the request's JSON has more than {values} values, or more than {size} bytes",
            why="the worker has to parse it, for a sequence id or a command, and other calls wait "
            "meanwhile",
            try_this="send tensors as binary data, which does not count, or use smaller batches",
        )


class HeadTooLarge(BadRequest):
    """The request line and the headers are larger than `max_head_bytes`."""

    code = "head_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the request head exceeds {limit} bytes",
            try_this="send fewer or smaller headers, or raise the setting max_head_bytes",
        )


class ExpectationFailed(BadRequest):
    """The request's `Expect` header is not `100-continue`, the only value that HTTP/1.1 defines."""

    code = "expectation_failed"

    def __init__(self, expected: str) -> None:
        super().__init__(
            f"the expectation '{expected}' is not supported",
            try_this="send 'Expect: 100-continue', or no Expect header",
        )


class BadVersion(BadRequest):
    """The version is not a number, or is out of range. The message is Triton's own.

    `is_read`: it is a number, but below 0.
    """

    code = "bad_version"

    def __init__(self, version: str, *, is_read: bool = False) -> None:
        bad = f"invalid model version specified '{version}' "
        if not is_read:
            bad = f"failed to get model version from specified version string '{version}'"
            bad += " (details: stol)"
        super().__init__(f"{bad}, version should be an integral value > 0")


class TooSlow(BadRequest):
    """The client did not send the rest of the request in time."""

    code = "too_slow"

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"the request timed out after {seconds:.3g} s", why=what)


class NotFound(ServegateError):
    """The object does not exist."""

    code = "not_found"


class UnknownModel(NotFound):
    """The model does not exist. The message begins like Triton's, because clients match on it."""

    code = "unknown_model"

    def __init__(self, model: str) -> None:
        super().__init__(f"Request for unknown model: '{model}' is not found")
        self.model = model


class UnknownVersion(NotFound):
    """The model exists, but the version does not."""

    code = "unknown_version"

    def __init__(self, model: str, version: str) -> None:
        super().__init__(f"Request for unknown model: '{model}' version {version} is not found")
        self.model = model


class UnknownLabel(NotFound):
    """The model exists, but the label does not."""

    code = "unknown_label"

    def __init__(self, model: str, label: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"Request for unknown model: '{model}' label '{label}' is not found",
            why=f"the labels of this model are: {names}",
            try_this=f"servegate label set {model} {label} VERSION",
        )


class NoMirror(NotFound):
    """The model's route has no mirror."""

    code = "no_mirror"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"the route of model '{model}' has no mirror",
            try_this=f"servegate route set {model} VERSION=100 --mirror CANDIDATE=10",
        )


class UnknownKey(NotFound):
    """The API key does not exist."""

    code = "unknown_key"

    def __init__(self, identity: str) -> None:
        super().__init__(f"there is no API key '{identity}'", try_this="servegate key ls")


class UnknownUpload(NotFound):
    """The upload does not exist: it was never started, is already published, or was deleted."""

    code = "unknown_upload"

    def __init__(self, identity: str) -> None:
        super().__init__(f"there is no upload '{identity}'", try_this="push again")


class UnknownConversion(NotFound):
    """The conversion does not exist: it never started, or its record has expired."""

    code = "unknown_conversion"

    def __init__(self, identity: str) -> None:
        super().__init__(f"there is no conversion '{identity}'", try_this="servegate convert ls")


class UnknownRevision(NotFound):
    """The history has no such revision."""

    code = "unknown_revision"

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no revision {number}", try_this="servegate history show")


class NotHere(NotFound):
    """The gateway does not serve this path or method."""

    code = "not_here"


class MethodNotAllowed(ServegateError):
    """The path exists, but does not support this HTTP method."""

    code = "method_not_allowed"


class NotServed(ServegateError):
    """The gateway does not forward this part of Triton's protocol."""

    code = "not_served"


class FixedSetting(ServegateError):
    """This Triton setting cannot be changed by a request. The message is Triton's own."""

    code = "fixed_setting"

    def __init__(self, name: str) -> None:
        said = name.replace("_", " ")
        super().__init__(f"{said} location can not be updated through network protocol")


class ModelControlOff(ServegateError):
    """Loading and unloading models by request is disabled. The message is Triton's own."""

    code = "model_control_off"

    def __init__(self, *, why: str, try_this: str) -> None:
        super().__init__(
            "explicit model load / unload is not allowed if polling is enabled",
            why=why,
            try_this=try_this,
        )


class Unauthenticated(ServegateError):
    """The API key is missing or not valid. The error deliberately does not say which."""

    code = "unauthenticated"

    def __init__(
        self,
        what: str = "a valid API key is required",
        *,
        why: str = "",
        try_this: str = "send the header 'authorization: Bearer sg_…'",
    ) -> None:
        super().__init__(what, why=why, try_this=try_this)


class Forbidden(ServegateError):
    """The API key's role does not permit the operation."""

    code = "forbidden"


class NotInRepository(ServegateError):
    """The model to load has no folder in the model repository. The message is Triton's own."""

    code = "not_in_repository"

    def __init__(self, model: str, why: str = "") -> None:
        super().__init__(f"failed to load '{model}', failed to poll from model repository", why=why)


class UnreadableConfiguration(NotInRepository):
    """The configuration of the model to load cannot be read."""

    code = "unreadable_configuration"


class LoadFailed(ServegateError):
    """The model could not be loaded. The message begins like Triton's."""

    code = "load_failed"

    def __init__(self, model: str, why: str) -> None:
        start = f"load failed for model '{model}'"
        super().__init__(why if why.startswith(start) else f"{start}: {why}")


class Conflict(ServegateError):
    """The operation conflicts with the current state."""

    code = "conflict"


class PreconditionFailed(Conflict):
    """The object has changed: the header `If-Match` does not match its current ETag."""

    code = "precondition_failed"

    def __init__(self, thing: str, present: str) -> None:
        super().__init__(
            f"{thing} has changed since you read it",
            why=f"its ETag is now {present}",
            try_this="read it again and repeat the change",
        )


class LaterChanges(Conflict):
    """The revision cannot be undone on its own: later revisions changed the same fields."""

    code = "later_changes"

    def __init__(
        self,
        revision: int,
        thing: str,
        changes: Iterable[str],
        later: Iterable[int],
        former: int | None,
    ) -> None:
        undo = " and ".join(f"servegate history undo {number}" for number in later)
        restore = f", or servegate history restore {former}" if former else ""
        super().__init__(
            f"revision {revision} cannot be undone alone: {thing} has changed again since",
            why="; ".join(changes),
            try_this=f"{undo} first{restore}",
        )


class WrongOffset(Conflict):
    """The chunk does not start where the previous one ended; `offset` is the expected position."""

    code = "wrong_offset"

    def __init__(self, sha256: str, offset: int) -> None:
        super().__init__(f"blob {sha256[:12]} continues at byte {offset}")
        self.offset = offset


class InUse(Conflict):
    """The object cannot be removed while routes, labels, ensembles or jobs use it."""

    code = "in_use"

    def __init__(self, thing: str, users: Iterable[str]) -> None:
        super().__init__(f"{thing} is in use", why=f"used by {', '.join(users)}")


class VersionNotReady(Conflict):
    """A route or label refers to a version that is not ready on any replica."""

    code = "version_not_ready"

    def __init__(self, model: str, version: int, why: str) -> None:
        super().__init__(
            f"version {version} of model '{model}' is not ready on any replica",
            why=why,
            try_this=f"servegate model show {model}",
        )


class Invalid(ServegateError):
    """A value in a file, a flag or a request is not valid."""

    code = "invalid"


class CheckFailed(Invalid):
    """The version failed its checks. `findings` lists all problems."""

    code = "check_failed"

    def __init__(self, what: str, findings: Iterable[str], *, try_this: str = "") -> None:
        self.findings = tuple(findings)
        super().__init__(what, why="; ".join(self.findings), try_this=try_this)


class CodeNotAllowed(Forbidden):
    """The version contains code, and `--allow-code-models` is not set."""

    code = "code_not_allowed"

    def __init__(self, why: str) -> None:
        super().__init__(
            "this version contains code that Triton would execute",
            why=why,
            try_this="servegate up --allow-code-models, if you trust all users who can push",
        )


class DigestMismatch(Invalid):
    """The uploaded bytes do not match their SHA-256, and were discarded."""

    code = "digest_mismatch"


class NoSpace(ServegateError):
    """The disk is full, or the upload quota is exceeded. Existing data is not affected."""

    code = "no_space"


# --- the gateway, the control plane or Triton cannot answer ---------------------------------------


class Unavailable(ServegateError):
    """Temporarily unavailable, for example because a job queue is full. Retry later."""

    code = "unavailable"


class NoSnapshot(Unavailable):
    """The gateway has not received its configuration from the control plane yet."""

    code = "no_snapshot"

    def __init__(self) -> None:
        super().__init__(
            "this gateway has no snapshot yet",
            why="the control plane has not answered since the start, and no snapshot is saved",
        )


class NoReplica(Unavailable):
    """No replica is ready for the version: none has loaded it, or all of them have failed."""

    code = "no_replica"

    def __init__(self, model: str, version: str, why: str = "") -> None:
        version = f" version {version}" if version else ""
        name = f" for model '{model}'{version}" if model else ""
        super().__init__(f"no replica is ready{name}", why=why)


class Asleep(NoReplica):
    """The model's pool is scaled to zero, and the call cannot wait, or has waited too long."""

    code = "asleep"

    def __init__(self, model: str, why: str = "its pool is scaled to zero") -> None:
        super().__init__(model, "", why)
        self.try_this = "repeat the call in a moment; a call wakes the pool"
        self.retry_after = 5  # seconds


class NotLoaded(NoReplica):
    """The version's replicas respond that they have not loaded it, for example after a restart.

    `until` is how long the call may wait for that, by the gateway's clock; 0 when it may not wait.
    """

    code = "not_loaded"

    def __init__(self, model: str, version: str) -> None:
        super().__init__(model, version, "the replicas that should serve it have not loaded it")
        self.try_this = "repeat the call in a moment"
        self.until = 0.0


class Overloaded(ServegateError):
    """The model's limit on calls in flight is reached. Triton did not receive the call."""

    code = "overloaded"

    def __init__(
        self, model: str, limit: int, retry_after: int = 1, *, by_patience: bool = False
    ) -> None:
        why, try_this = "", "repeat the call in a moment, or raise the setting max_in_flight"
        if by_patience:
            why = "with more calls, clients disconnected before they got a response"
            try_this = "repeat the call in a moment with a longer timeout, or add replicas"
        super().__init__(
            f"model '{model}' is at its limit of {limit} calls in flight in this worker",
            why=why,
            try_this=try_this,
        )
        self.retry_after = retry_after  # seconds


class NoRoom(ServegateError):
    """The worker's memory for request bodies is used up. Triton did not receive the call."""

    code = "no_room"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"this worker is at its limit of {limit} bytes of bodies in flight",
            try_this="repeat the call in a moment, or raise the setting max_in_flight_bytes",
        )
        self.retry_after = 1  # seconds


class TooManyIncomplete(ServegateError):
    """This API key or client address has too many calls whose bodies are incomplete."""

    code = "too_many_incomplete"

    def __init__(self, whose: str, limit: int) -> None:
        super().__init__(
            f"this {whose} already has {limit} calls with incomplete request bodies",
            try_this="repeat the call in a moment, or raise the setting max_incomplete",
        )
        self.retry_after = 1  # seconds


class DeadlineExceeded(ServegateError):
    """The call's deadline has passed."""

    code = "deadline_exceeded"

    def __init__(
        self, what: str = "the call's deadline has passed", *, why: str = "", try_this: str = ""
    ) -> None:
        super().__init__(what, why=why, try_this=try_this)


class NotSent(ServegateError):
    """The call was not sent to Triton, so it was not executed and can be repeated safely."""

    code = "not_sent"


class OutcomeUnknown(ServegateError):
    """Triton may have executed the call: it received bytes, but sent no complete response."""

    code = "outcome_unknown"


# --- starting and running ------------------------------------------------------------------------


class CannotStart(ServegateError):
    """The process cannot start with the given settings, or on this machine."""

    code = "cannot_start"


class TritonMissing(CannotStart):
    """No Triton installation was found on this machine."""

    code = "triton_missing"


class TritonDidNotStart(CannotStart):
    """A local Triton did not become ready. `last_lines` contains the end of its log."""

    code = "triton_did_not_start"

    def __init__(self, replica: str, why: str, last_lines: Iterable[str]) -> None:
        self.last_lines = tuple(last_lines)
        said = f"; its log ends with: {' | '.join(self.last_lines)}" if self.last_lines else ""
        super().__init__(f"Triton {replica} did not start", why=why + said)


class ConversionFailed(ServegateError):
    """The model cannot be converted."""

    # An instance has the code of its row in `conversion/faults.py`. `operator` and `node` name what
    # is to blame, where one is.
    code = "conversion_failed"

    def __init__(
        self,
        code: str,
        what: str,
        *,
        why: str = "",
        try_this: str = "",
        operator: str = "",
        node: str = "",
    ) -> None:
        super().__init__(what, why=why, try_this=try_this)
        self.code = code
        self.operator = operator
        self.node = node


class GateRefused(ConversionFailed):
    """The converted model gives different results than its source, and was not published."""

    code = "gate_refused"


class TrialFailed(ServegateError):
    """In quarantine, the version did not load, exceeded a limit, crashed, or gave wrong outputs."""

    code = "trial_failed"


class TritonFailed(ServegateError):
    """Triton refused a management request, or crashed."""

    code = "triton_failed"


class NoControl(Unavailable):
    """The control plane is not responding."""

    code = "no_control"


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error of the group: the others came of the same cause, or after it."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first
