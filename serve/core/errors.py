"""The error tree: what went wrong, built from nouns; the rim translates it into status codes.

Every error knows three sentences: what happened, why, and what to try. `code` is stable: scripts,
metrics and documentation refer to it. Which HTTP or gRPC status an error becomes is decided in one
place, `wire/status.py`; which exit code, in `cli`.
"""

from collections.abc import Iterable


class ServegateError(Exception):
    """What happened, why, and what to try. The base of every error raised on purpose."""

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


# --- what a caller asked for is wrong ------------------------------------------------------------


class BadRequest(ServegateError):
    """The request itself is malformed."""

    code = "bad_request"


class Unparsable(BadRequest):
    """A gRPC message that is no protobuf. The sentence starts as Triton's does."""

    code = "unparsable"

    def __init__(self, why: str) -> None:
        super().__init__("Unable to parse request", why=why)


class WrongJson(BadRequest):
    """A management call's JSON is broken, or a value in it has the wrong type, as Triton says."""

    code = "wrong_json"


class BodyTooLarge(BadRequest):
    """The body exceeds the limit that the operator set."""

    code = "body_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the request body exceeds {limit} bytes",
            try_this="smaller batches, or raise --max-body-bytes",
        )


class InflatedTooLarge(BodyTooLarge):
    """The compressed body grows beyond the limit: the operator's, or what its size may become."""

    code = "inflated_too_large"

    def __init__(self, limit: int) -> None:
        ServegateError.__init__(
            self,
            f"the request body exceeds {limit} bytes when it is inflated",
            try_this="smaller batches, no compression, or raise --max-inflated-bytes",
        )


class ConversionTooLarge(BodyTooLarge):
    """A body that has to be taken apart would take more memory than the operator allows."""

    code = "conversion_too_large"

    def __init__(self, size: int, limit: int) -> None:
        ServegateError.__init__(
            self,
            f"the request would take {size} bytes of memory to convert, beyond {limit}",
            why="its JSON or its message has to be taken apart",
            try_this="smaller batches, binary tensors over KServe v2, or raise "
            "--max-in-flight-bytes",
        )


class TooMuchJson(BodyTooLarge):
    """JSON that has to be read for a call's correlation id, or for a management call."""

    code = "too_much_json"

    def __init__(self, values: int, size: int) -> None:
        ServegateError.__init__(
            self,
            f"the request's JSON has more than {values} values, or {size} bytes",
            why="it has to be read, for the correlation id or for the command, while other calls "
            "wait",
            try_this="tensors as binary data, which do not count, or smaller batches",
        )


class HeadTooLarge(BadRequest):
    """The request's head exceeds the limit that the operator set."""

    code = "head_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the request head exceeds {limit} bytes",
            try_this="fewer or smaller headers, or raise --max-head-bytes",
        )


class ExpectationFailed(BadRequest):
    """The request's `Expect` is not 100-continue, the only expectation that HTTP/1.1 has."""

    code = "expectation_failed"

    def __init__(self, expected: str) -> None:
        super().__init__(f"the expectation '{expected}' cannot be met", try_this="100-continue")


class BadVersion(BadRequest):
    """A version that is no number, or none that Triton counts to. The sentence is Triton's.

    `is_read` says that it is a number, but below 0.
    """

    code = "bad_version"

    def __init__(self, version: str, *, is_read: bool = False) -> None:
        bad = f"invalid model version specified '{version}' "
        if not is_read:
            bad = f"failed to get model version from specified version string '{version}'"
            bad += " (details: stol)"
        super().__init__(f"{bad}, version should be an integral value > 0")


class TooSlow(BadRequest):
    """The caller owes a part of the request and does not send it."""

    code = "too_slow"

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"the request was given up after {seconds:.3g} s", why=what)


class NotFound(ServegateError):
    """Something that was named does not exist."""

    code = "not_found"


class UnknownModel(NotFound):
    """No such model. The sentence starts as Triton's does, because clients look for it."""

    code = "unknown_model"

    def __init__(self, model: str) -> None:
        super().__init__(f"Request for unknown model: '{model}' is not found")
        self.model = model


class UnknownVersion(NotFound):
    """The model exists, the version does not."""

    code = "unknown_version"

    def __init__(self, model: str, version: str) -> None:
        super().__init__(f"Request for unknown model: '{model}' version {version} is not found")
        self.model = model


class UnknownLabel(NotFound):
    """The model exists, the label does not."""

    code = "unknown_label"

    def __init__(self, model: str, label: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(
            f"Request for unknown model: '{model}' label '{label}' is not found",
            why=f"labels of this model: {names}",
            try_this=f"servegate label set {model} {label} VERSION",
        )


class UnknownKey(NotFound):
    """No such API key."""

    code = "unknown_key"

    def __init__(self, identity: str) -> None:
        super().__init__(f"there is no API key '{identity}'", try_this="servegate key ls")


class UnknownUpload(NotFound):
    """No such upload: it was never begun, was published, or was given up."""

    code = "unknown_upload"

    def __init__(self, identity: str) -> None:
        super().__init__(f"there is no upload '{identity}'", try_this="push again: it resumes")


class UnknownConversion(NotFound):
    """No such conversion: it was never asked for, or is so old that it was forgotten."""

    code = "unknown_conversion"

    def __init__(self, identity: str) -> None:
        super().__init__(f"there is no conversion '{identity}'", try_this="servegate convert ls")


class UnknownRevision(NotFound):
    """No such revision in the history."""

    code = "unknown_revision"

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no revision {number}", try_this="servegate history show")


class NotHere(NotFound):
    """A path or method that this gateway does not serve."""

    code = "not_here"


class MethodNotAllowed(ServegateError):
    """The path exists, the HTTP method does not."""

    code = "method_not_allowed"


class NotServed(ServegateError):
    """A part of Triton's protocol that the gateway does not pass on."""

    code = "not_served"


class FixedSetting(ServegateError):
    """A setting of Triton's that no call may change. The sentence is Triton's."""

    code = "fixed_setting"

    def __init__(self, name: str) -> None:
        said = name.replace("_", " ")
        super().__init__(f"{said} location can not be updated through network protocol")


class ModelControlOff(ServegateError):
    """Models cannot be loaded or unloaded by calls here. The sentence is Triton's."""

    code = "model_control_off"

    def __init__(self, *, why: str, try_this: str) -> None:
        super().__init__(
            "explicit model load / unload is not allowed if polling is enabled",
            why=why,
            try_this=try_this,
        )


class Unauthenticated(ServegateError):
    """Nobody knows who calls: no key, or none that is valid. Which of the two is not said."""

    code = "unauthenticated"

    def __init__(
        self,
        what: str = "a valid API key is needed",
        *,
        why: str = "",
        try_this: str = "the header 'authorization: Bearer sg_…'",
    ) -> None:
        super().__init__(what, why=why, try_this=try_this)


class Forbidden(ServegateError):
    """It is known who calls, and the role does not allow this to anybody."""

    code = "forbidden"


class NotInRepository(ServegateError):
    """A model that is to be loaded has no folder. The sentence is Triton's."""

    code = "not_in_repository"

    def __init__(self, model: str, why: str = "") -> None:
        super().__init__(f"failed to load '{model}', failed to poll from model repository", why=why)


class UnreadableConfiguration(NotInRepository):
    """A model that is to be loaded has a configuration that cannot be read."""

    code = "unreadable_configuration"


class LoadFailed(ServegateError):
    """A model could not be loaded. The sentence starts as Triton's does."""

    code = "load_failed"

    def __init__(self, model: str, why: str) -> None:
        start = f"load failed for model '{model}'"
        super().__init__(why if why.startswith(start) else f"{start}: {why}")


class Conflict(ServegateError):
    """The state that the caller saw is not the state that is."""

    code = "conflict"


class PreconditionFailed(Conflict):
    """If-Match named another revision than the present one."""

    code = "precondition_failed"

    def __init__(self, thing: str, present: str) -> None:
        super().__init__(
            f"{thing} has changed since you read it",
            why=f"its ETag is now {present}",
            try_this="read it again and repeat the change",
        )


class LaterChanges(Conflict):
    """A change cannot be taken back alone: later ones changed the same fields again."""

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
            f"revision {revision} cannot be taken back alone: {thing} was changed again",
            why="; ".join(changes),
            try_this=f"{undo} first{restore}",
        )


class WrongOffset(Conflict):
    """A piece of a blob does not start where the last one ended; `offset` is where that is."""

    code = "wrong_offset"

    def __init__(self, sha256: str, offset: int) -> None:
        super().__init__(f"blob {sha256[:12]} goes on at byte {offset}")
        self.offset = offset


class InUse(Conflict):
    """Something that is to go is still needed: `users` are the routes, labels, ensembles."""

    code = "in_use"

    def __init__(self, thing: str, users: Iterable[str]) -> None:
        super().__init__(f"{thing} is in use", why=f"by {', '.join(users)}")


class VersionNotReady(Conflict):
    """A route or label names a version that no replica serves."""

    code = "version_not_ready"

    def __init__(self, model: str, version: int, why: str) -> None:
        super().__init__(
            f"version {version} of model '{model}' is not ready on any replica",
            why=why,
            try_this=f"servegate model show {model}",
        )


class Invalid(ServegateError):
    """A value that people wrote (a file, a flag, a route) breaks a rule."""

    code = "invalid"


class CheckFailed(Invalid):
    """A version did not pass a check; `findings` are all that was found, one sentence each."""

    code = "check_failed"

    def __init__(self, what: str, findings: Iterable[str], *, try_this: str = "") -> None:
        self.findings = tuple(findings)
        super().__init__(what, why="; ".join(self.findings), try_this=try_this)


class CodeNotAllowed(Forbidden):
    """A version that runs code of its own, where that is not allowed."""

    code = "code_not_allowed"

    def __init__(self, why: str) -> None:
        super().__init__(
            "this version brings code that the Tritons would run",
            why=why,
            try_this="servegate up --allow-code-models, if you trust everybody who may push",
        )


class DigestMismatch(Invalid):
    """The bytes that came are not those that were announced; they are thrown away."""

    code = "digest_mismatch"


class NoSpace(ServegateError):
    """The disk is full, or the quota is used up. What was there before is unharmed."""

    code = "no_space"


# --- the gateway or what is behind it cannot answer ----------------------------------------------


class Unavailable(ServegateError):
    """The call is fine, but nobody can serve it now."""

    code = "unavailable"


class NoSnapshot(Unavailable):
    """The data plane has not yet received any snapshot."""

    code = "no_snapshot"

    def __init__(self) -> None:
        super().__init__(
            "this gateway has no snapshot yet",
            why="the control plane has not answered since the start and no saved snapshot exists",
        )


class NoReplica(Unavailable):
    """No replica holds the version, or all of them have failed."""

    code = "no_replica"

    def __init__(self, model: str, version: str, why: str = "") -> None:
        version = f" version {version}" if version else ""
        name = f" for model '{model}'{version}" if model else ""
        super().__init__(f"no replica is ready{name}", why=why)


class Asleep(NoReplica):
    """The model's pool has been scaled to zero, and no call may wait any longer for it to wake."""

    code = "asleep"

    def __init__(self, model: str, why: str = "its pool has been scaled to zero") -> None:
        super().__init__(model, "", why)
        self.try_this = "again in a moment: a call wakes the pool"
        self.retry_after = 5  # seconds


class NotLoaded(NoReplica):
    """The replicas that should hold the version have not loaded it: one has just started, perhaps.

    `until` is how long the call may wait for that, by the gateway's clock; 0 when it may not wait.
    """

    code = "not_loaded"

    def __init__(self, model: str, version: str) -> None:
        super().__init__(model, version, "the replicas that should hold it have not loaded it")
        self.try_this = "again in a moment"
        self.until = 0.0


class Overloaded(ServegateError):
    """The concurrency limit of a model is reached; nothing was sent."""

    code = "overloaded"

    def __init__(
        self, model: str, limit: int, retry_after: int = 1, *, by_patience: bool = False
    ) -> None:
        why, try_this = "", "again in a moment, or raise --max-in-flight"
        if by_patience:
            why = "callers gave up before more than that could be answered"
            try_this = "again in a moment, more patience, or more replicas"
        super().__init__(
            f"model '{model}' is at its limit of {limit} calls in flight in this worker",
            why=why,
            try_this=try_this,
        )
        self.retry_after = retry_after  # seconds


class NoRoom(ServegateError):
    """This worker holds as many bytes of bodies as it may; nothing was sent."""

    code = "no_room"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"this worker already holds {limit} bytes of bodies in flight",
            try_this="again in a moment, or raise --max-in-flight-bytes",
        )
        self.retry_after = 1  # seconds


class TooManyIncomplete(ServegateError):
    """A key or an address has as many calls as it may whose bodies have not come whole."""

    code = "too_many_incomplete"

    def __init__(self, whose: str, limit: int) -> None:
        super().__init__(
            f"this {whose} already has {limit} calls whose bodies have not come whole",
            try_this="again in a moment, or raise --max-incomplete",
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
    """A transport could not deliver a single byte: provably not executed (retry rule 1)."""

    code = "not_sent"


class OutcomeUnknown(ServegateError):
    """Bytes were sent and no complete answer came back: the call may have been executed."""

    code = "outcome_unknown"


# --- starting and running ------------------------------------------------------------------------


class CannotStart(ServegateError):
    """The process cannot start as configured."""

    code = "cannot_start"


class TritonMissing(CannotStart):
    """There is no Triton on this machine that could be started."""

    code = "triton_missing"


class TritonDidNotStart(CannotStart):
    """A local Triton was started and did not come up; `last_lines` is what it said at the end."""

    code = "triton_did_not_start"

    def __init__(self, replica: str, why: str, last_lines: Iterable[str]) -> None:
        self.last_lines = tuple(last_lines)
        said = f"; the end of its log: {' | '.join(self.last_lines)}" if self.last_lines else ""
        super().__init__(f"Triton {replica} did not start", why=why + said)


class ConversionFailed(ServegateError):
    """A model cannot be converted."""

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
    """A model was converted and is not what the source was: nothing of it is published."""

    code = "gate_refused"


class TrialFailed(ServegateError):
    """A version failed in quarantine: it did not load, took too much, died, or answered wrongly."""

    code = "trial_failed"


class TritonFailed(ServegateError):
    """Triton refused a control command, or died."""

    code = "triton_failed"


class NoControl(Unavailable):
    """The control plane does not answer."""

    code = "no_control"


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error of the group: the others came of the same cause, or after it."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first
