"""Restoring names: only the real name and number are replaced, wherever the answer was cut."""

import itertools
import json

from builders import target
from hypothesis import example, given
from hypothesis import strategies as st

from serve.core.snapshot import VersionTarget
from serve.wire.model_names import SEARCHED, RestoredEvents, in_answer, in_error

RENAMED = target(2, model="digits", physical="digits--0123abcd")
HERE = b'"model_name":"digits--0123abcd","model_version":"2"'
OURS = b'"model_name":"digits","model_version":"2"'


def test_the_models_own_name_and_version_stand_in_the_answer() -> None:
    answer = b'{"id":"7",%b,"outputs":[]}\x00\xff' + HERE + b"\r\n\r\n"  # binary data stay
    assert in_answer(answer % HERE, RENAMED) == answer % OURS
    numbered = VersionTarget("m", 7, "m--0123abcd", 1, "onnxruntime", ("a",))
    for there, ours in ((b"1", b"7"), (b"11", b"11")):
        answer = b'{"model_name":"%b","model_version":"%b","outputs":[]}'
        assert in_answer(answer % (b"m--0123abcd", there), numbered) == answer % (b"m", ours)
    for answer in (b"", b"{}", b'{"model_name":"digits","model_version":"2"}', b"\xff\x00" * 50):
        assert in_answer(answer, RENAMED) is None


_TEXTS = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(
            [
                *('"', "\\", ",", ":", "{", '","', "é", "\0", "2", "model_name", "model_version"),
                *("digits--0123abcd", HERE.decode(), OURS.decode()),
            ]
        ),
        max_size=12,
    ).map("".join),
)


def answer_with(identity: str, outputs: object = (), *, escapes: bool = False) -> bytes:
    """An answer as Triton writes one: compact, the id first, then the names."""
    item = {
        "id": identity,
        "model_name": "digits--0123abcd",
        "model_version": "2",
        "outputs": outputs,
    }
    return json.dumps(item, separators=(",", ":"), ensure_ascii=escapes).encode()


@given(_TEXTS, _TEXTS, st.booleans())
@example(HERE.decode(), HERE.decode(), False)
@example('","' + HERE.decode(), "", False)
@example("\\", "\\", False)
@example("model_name", "", False)
def test_whatever_the_id_says_only_the_real_names_are_replaced(
    identity: str, text: str, escapes: bool
) -> None:
    answer = answer_with(identity, [text], escapes=escapes)
    restored = in_answer(answer, RENAMED)
    assert restored is not None
    expected = json.loads(answer) | {"model_name": "digits"}
    assert json.loads(restored) == expected
    assert len(answer) - len(restored) == len(b"--0123abcd")


@given(_TEXTS)
def test_the_names_are_restored_as_soon_as_they_are_complete_and_not_before(identity: str) -> None:
    answer = answer_with(identity)
    whole, end = in_answer(answer, RENAMED), answer.rindex(b',"outputs"')
    assert all(in_answer(answer[:cut], RENAMED) is None for cut in range(end))
    for cut in range(end, len(answer) + 1):
        restored = in_answer(answer[:cut], RENAMED)
        assert restored is not None
        assert restored + answer[cut:] == whole


def test_an_error_names_the_model_by_its_own_name() -> None:
    said = b"Request for unknown model: 'digits--0123abcd' version 2 is not found"
    ours = b"Request for unknown model: 'digits' version 2 is not found"
    assert in_error(said, RENAMED) == ours
    assert in_error(b"x " + said + b"; " + said, RENAMED) == b"x " + ours + b"; " + ours
    for other in (b"", b"'digits--0123abcde'", b"'digits--0123abc", b"a digits--0123abcd"):
        assert in_error(other, RENAMED) == other


EVENT = b"data: {" + HERE + b',"n":1}\n\n'
QUOTING = b"data: {" + HERE + b',"text":"\'digits--0123abcd\'"}\n\n'
FAILED = b'data: {"error":"model \'digits--0123abcd\' failed"}\n\n'
STREAM = EVENT + FAILED + b": a comment\n\n" + QUOTING + EVENT + b"data: cut of"


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_restored_one_by_one_wherever_the_stream_was_cut(cuts: list[int]) -> None:
    """Only in an error are names in quotes those of the model."""
    events, places = RestoredEvents(RENAMED), [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(places)]
    restored = b"".join(map(events.restored, pieces)) + events.rest()
    ours = FAILED.replace(b"--0123abcd", b"")
    assert restored == STREAM.replace(HERE, OURS).replace(FAILED, ours)


def test_what_is_complete_is_held_no_longer() -> None:
    events = RestoredEvents(RENAMED)
    assert events.restored(EVENT + EVENT[:20]) == EVENT.replace(HERE, OURS)
    assert events.restored(EVENT[20:]) == EVENT.replace(HERE, OURS)
    assert events.rest() == b""


def test_of_an_event_that_does_not_end_no_more_is_held_than_of_an_answer() -> None:
    events = RestoredEvents(RENAMED)
    passed = sum(len(events.restored(b"x" * 1000)) for _ in range(200))
    assert 200_000 - passed <= SEARCHED
