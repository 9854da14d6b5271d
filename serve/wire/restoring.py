"""Restoring names: an answer says the model's own name and version where Triton knows it by others.

Versions whose configurations differ have physical names in Triton (`core.naming`). Triton writes
`"model_name":"…","model_version":"…"` near the start of its JSON, after the request's id; inside a
JSON string every quotation mark is escaped, so this sequence of bytes cannot occur in the id. It is
replaced where it stands, nothing is parsed. Error sentences name the model in single quotes.
"""

from serve.core.snapshot import Target

SEARCHED = 64 << 10  # bytes of an answer that are held back while the names have not been found


def in_answer(start: bytes, target: Target) -> bytes | None:
    """The start of a JSON answer with the names restored; None when they are not in it (yet)."""
    name = b'"model_name":"%b","model_version":"' % target.physical_name.encode()
    there = start.find(name)
    if there < 0:
        return None
    after = start.find(b'"', there + len(name))
    if after < 0:
        return None
    number = start[there + len(name) : after]
    if number == str(target.physical_version).encode():
        number = str(target.version).encode()
    ours = b'"model_name":"%b","model_version":"%b' % (target.model.encode(), number)
    return start[:there] + ours + start[after:]


def in_error(sentence: bytes, target: Target) -> bytes:
    """An error sentence of Triton with the model's own name."""
    return sentence.replace(
        b"'%b'" % target.physical_name.encode(), b"'%b'" % target.model.encode()
    )


def in_description(body: bytes, target: Target) -> bytes:
    """Metadata, configuration or statistics with the model's own name."""
    return body.replace(
        b'"name":"%b"' % target.physical_name.encode(), b'"name":"%b"' % target.model.encode()
    )
