"""Request lines: a path that is taken for a question about a model is the same one to Triton."""

import re

from serve.core.errors import ServegateError
from serve.wire import kserve_http
from serve.wire.kserve_http import KServeQuestion

_TRITON = re.compile(rb"/v2/models/([^/]+)(?:/versions/([0-9]+))?(?:/(infer|ready|config|stats))?")


def play(data: bytes) -> None:
    method, _, path = data.partition(b" ")
    try:
        asked = kserve_http.parse(method.decode("latin-1"), path)
    except ServegateError:
        return
    if not isinstance(asked, KServeQuestion) or not asked.model:
        assert path.startswith(b"/v2")
        return
    number = int(asked.selector) if re.fullmatch("[0-9]{1,18}", asked.selector) else None
    again = kserve_http.upstream_path(asked.verb, asked.model, number).encode("latin-1")
    match = _TRITON.fullmatch(again)
    assert match is not None, again
    assert match[1] == asked.model.encode("latin-1")
    assert (match[3] or b"metadata").decode() == asked.verb.value
    if number is not None and asked.selector == str(number):
        assert again == path
