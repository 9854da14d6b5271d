"""What the gateway says otherwise than Triton over HTTP, and why. All else is a fault."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """Some calls whose answers differ in these fields."""

    reason: str
    fields: frozenset[str]
    calls: tuple[str, ...]


def differs(fields: str, reason: str, *calls: str) -> Difference:
    """`fields` are separated by commas."""
    return Difference(reason, frozenset(fields.split(", ")), calls)


DIFFERENCES: tuple[Difference, ...] = (
    differs(
        "status, content-type, body",
        "Open Inference puts a slash behind the path of the server's metadata",
        "GET server metadata with a slash",
    ),
    differs(
        "content-type, body",
        "Open Inference and its clients want a JSON object where Triton's clients want a status",
        "GET live",
        "GET live with a query",
        "GET ready",
    ),
    differs(
        "status, body",
        "a model that no replica has ready may come back, so clients are to try again",
        "GET metadata of an unloaded model",
        "GET config of an unloaded model",
        "generate of gone",
        "generate_stream of gone",
    ),
    differs(
        "status, content-type, body",
        "the same; Triton calls it plain text when it is infer that asks",
        "infer of an unloaded model",
    ),
    differs(
        "content-type, body",
        "the same with a version, where Triton says 503, too",
        "infer of a version of an unloaded model",
    ),
    differs(
        "status, body",
        "management would change or show one replica out of many: the answer says what to use",
        "GET trace settings",
        "GET log settings",
        "GET shared memory status",
        "POST load of an unknown model",
        "POST unload of an unknown model",
        "POST unregister",
        "POST logging",
    ),
    differs(
        "content-type, body",
        "a version that is a word is a label here, and the answer says which there are",
        "GET version that is a word",
    ),
    differs(
        "body",
        "the same where Triton calls the error plain text",
        "POST infer of a version that is a word",
    ),
    differs(
        "body, is whole",
        "an answer to HEAD has no body (RFC 9110); Triton sends one, which breaks the next answer",
        "HEAD /v2",
        "HEAD /v2/health/live",
        "HEAD /v2/models/add",
        "HEAD /v2/models/add/infer",
        "HEAD /v2/x",
    ),
    differs(
        "content-type, body",
        "a length of the JSON that cannot be is refused before anything is sent to a replica",
        "bytes with a header beyond the body",
        "bytes with a negative header",
    ),
    differs(
        "body",
        "the same; Triton 2.51 takes what is no number for 0, later ones refuse it",
        "bytes with a header that is no number",
        "bytes with an empty header",
    ),
    differs(
        "status, body",
        "two such lengths may mean one thing to the gateway and another to Triton",
        "bytes with the header twice",
    ),
    differs(
        "body",
        "names of headers are in lower case here, and this Triton makes parameters of some",
        "infer with a header that becomes a parameter",
    ),
    differs(
        "number of answers",
        "an HTTP/1.0 connection is closed after its answer",
        "HTTP/1.0 that stays, twice",
    ),
    differs(
        "is chunked",
        "HTTP/1.0 knows no chunks; Triton sends them all the same",
        "generate over HTTP/1.0",
        "generate_stream over HTTP/1.0",
    ),
    differs(
        "status, body",
        "what two parsers may read in two ways is refused (RFC 9112)",
        "a space before a colon",
        "two lengths",
        "two lengths that differ",
        "a length and chunks",
        "another coding",
        "a later version",
        "FOO metadata",
    ),
    differs(
        "status, body",
        "HTTP/1.1 requires a Host (RFC 9112)",
        "no host",
    ),
    differs(
        "status, content-type, body",
        "the same where Triton calls the error plain text",
        "FOO ready",
    ),
    differs(
        "number of answers",
        "what is no HTTP is answered with 400; Triton hangs up without a word",
        "a head in two lines",
        "a header without a colon",
        "a length that is no number",
        "a negative length",
        "HTTP/2",
        "no HTTP at all",
    ),
)
