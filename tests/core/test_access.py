"""Access: which key may do what, who is told what, and what is kept of a key."""

import dataclasses
import hashlib
import itertools

from builders import Clock
from refusals import refusal

from serve.core.access import Access, Act, ApiKey, Role, digest_of, is_ours, may
from serve.core.errors import Forbidden, Invalid, ServegateError, Unauthenticated, UnknownModel


class Scene:
    """One key and the decisions about it."""

    def __init__(
        self,
        role: Role = Role.PREDICTOR,
        *models: str,
        expires: float | None = None,
        is_required: bool = True,
    ) -> None:
        self.clock = Clock()
        self.key, self.words = ApiKey.create(role, models or ("*",), expires)
        self.access = Access({self.key.id: self.key}, is_required=is_required, wall=self.clock)

    @property
    def credential(self) -> bytes:
        return b"Bearer " + self.words.encode()

    def outcome(self, act: Act, model: str = "", credential: bytes | None = None) -> str:
        """`yes`, or the code of the error."""
        try:
            self.access.check(self.credential if credential is None else credential, act, model)
        except ServegateError as error:
            return error.code
        return "yes"


# --- the matrix ----------------------------------------------------------------------------------

MATRIX = {
    # the answers to a key that sees digits*: without a model, for digits and for secret
    (Role.PREDICTOR, Act.ASK): ("yes", "yes", "unknown_model"),
    (Role.PREDICTOR, Act.CALL): ("yes", "yes", "unknown_model"),
    (Role.PREDICTOR, Act.MANAGE): ("forbidden", "forbidden", "forbidden"),
    (Role.PREDICTOR, Act.ADMINISTER): ("forbidden", "forbidden", "forbidden"),
    (Role.ADMIN, Act.ASK): ("yes", "yes", "unknown_model"),
    (Role.ADMIN, Act.CALL): ("yes", "yes", "unknown_model"),
    (Role.ADMIN, Act.MANAGE): ("yes", "yes", "unknown_model"),
    (Role.ADMIN, Act.ADMINISTER): ("yes", "yes", "unknown_model"),
}


def test_the_decision_follows_from_role_act_and_model() -> None:
    assert set(MATRIX) == set(itertools.product(Role, Act))
    for (role, act), answers in MATRIX.items():
        for model, answer in zip(("", "digits", "secret"), answers, strict=True):
            scene = Scene(role, "digits*")
            assert scene.outcome(act, model) == answer, (role, act, model)
            assert scene.outcome(act, model) == answer, (role, act, model)  # and when remembered
            assert may(scene.key, act, model) == (answer == "yes"), (role, act, model)


def test_without_a_valid_key_every_act_hears_the_same() -> None:
    for act in Act:
        for credential in (b"", b"Bearer sg_0000000000_" + b"x" * 43):
            assert Scene(Role.ADMIN).outcome(act, "digits", credential) == "unauthenticated", act


def test_where_no_key_is_needed_whatever_is_shown_may_do_everything() -> None:
    for act in Act:
        scene = Scene(is_required=False)
        for credential in (b"", b"Bearer nonsense", scene.credential):
            assert scene.access.check(credential, act, "digits") is None


def test_a_refusal_does_not_tell_whether_a_model_exists() -> None:
    scene = Scene(Role.PREDICTOR, "digits")
    told = refusal(UnknownModel, scene.access.check, scene.credential, Act.CALL, "secret")
    assert str(told) == str(UnknownModel("secret"))
    by_role = refusal(Forbidden, scene.access.check, scene.credential, Act.MANAGE, "secret")
    assert scene.key.id in str(by_role) and "secret" not in str(by_role)


def test_patterns_say_which_models_exist_for_a_key() -> None:
    for patterns, seen, unseen in (
        (("*",), ["a", "a.b-c", "A"], []),
        (("digits",), ["digits"], ["digits2", "Digits", "mydigits", ""]),
        (("digits*", "m?"), ["digits", "digits--01234567", "m1"], ["m", "m12"]),
        (("[ab]*",), ["a", "b1"], ["c", "[ab]"]),
        (("!m",), ["!m"], ["m", "a"]),
    ):
        key, _ = ApiKey.create(Role.PREDICTOR, patterns)
        assert [name for name in (*seen, *unseen) if key.sees(name)] == seen, (patterns, seen)


# --- time ----------------------------------------------------------------------------------------


def test_a_key_ends_at_its_time_if_it_has_one_even_when_it_is_remembered() -> None:
    ends, endless = Scene(expires=1010.0), Scene()
    for now, is_valid in ((1000.0, True), (1009.9, True), (1010.0, False), (1e12, False)):
        ends.clock.now = endless.clock.now = now
        assert ends.outcome(Act.CALL, "m") == ("yes" if is_valid else "unauthenticated"), now
        assert endless.outcome(Act.CALL, "m") == "yes"


def test_a_time_that_never_comes_is_refused() -> None:
    for expires in (float("nan"), float("inf"), float("-inf")):
        refusal(Invalid, ApiKey.create, Role.PREDICTOR, expires=expires)


# --- credentials ---------------------------------------------------------------------------------


def test_the_scheme_is_read_in_any_case() -> None:
    for scheme in (b"Bearer ", b"bearer ", b"BEARER ", b"Bearer    "):
        scene = Scene()
        credential = scheme + scene.words.encode()
        assert scene.outcome(Act.ASK, "", credential) == "yes", scheme
        assert is_ours(credential), scheme


def malformed(words: bytes) -> list[bytes]:
    """Values around a good key that are no credential."""
    head, secret = words[:13], words[-10:]
    schemes = (b"", b"Basic ", b"Bearer", b"Bearer\t", b" Bearer ")
    ends = (b"x", b" more", b"\x00", b"\xff", b"\n" + words, b", Bearer " + words)
    others = (words[:-1], words.upper(), head, secret, b"sg__" + secret, b"sg_" + b"a" * 100_000)
    return [
        *(b"", b"Bearer", b"Bearer ", b"\xff\xfe"),
        *(scheme + words for scheme in schemes),
        *(b"Bearer " + words + end for end in ends),
        *(b"Bearer " + other for other in others),
    ]


def test_what_is_no_credential_opens_nothing() -> None:
    scene = Scene()
    for credential in malformed(scene.words.encode()):
        refusal(Unauthenticated, scene.access.check, credential, Act.ASK)
        assert scene.outcome(Act.ASK) == "yes"
        refusal(Unauthenticated, scene.access.check, credential, Act.ASK)  # nor after a good one


def test_every_failure_to_authenticate_is_told_in_the_same_words() -> None:
    scene = Scene(expires=1001.0)
    late = Scene(expires=1.0)
    told = set()
    for one, credential in (
        (scene, b""),
        (scene, b"Bearer sg_0123456789_" + b"x" * 43),  # no such id
        (scene, scene.credential[:-1] + b"!"),
        (scene, scene.credential[:-4] + b"AAAA"),  # the id exists
        (late, late.credential),  # expired
    ):
        told.add(str(refusal(Unauthenticated, one.access.check, credential, Act.ASK)))
    assert len(told) == 1


def test_a_key_of_one_id_does_not_open_with_the_secret_of_another() -> None:
    one, two = ApiKey.create(Role.ADMIN), ApiKey.create(Role.ADMIN)
    both = Access({k.id: k for k, _ in (one, two)}, is_required=True, wall=Clock())
    mixed = f"Bearer sg_{one[0].id}_{two[1].split('_', 2)[2]}"
    refusal(Unauthenticated, both.check, mixed.encode(), Act.ASK)


def test_a_key_of_ours_is_recognised_however_it_is_said_and_others_are_left_to_triton() -> None:
    for credential in (
        *(b"Bearer sg_abcd_0123456789abcdef", b"bearer   sg_abcd_0123456789abcdef "),
        *(b"Bearer\tsg_abcd_x", b"sg_abcd_0123456789abcdef", b"Token sg_abcd_0123456789abcdef"),
        b"Basic abc, Bearer sg_abcd_0123456789abcdef",
    ):
        assert is_ours(credential), credential
    for credential in (
        *(b"", b"Bearer", b"Bearer eyJhbGciOi.sg_abc_def.x", b"Basic c2c6c2c=", b"Bearer sg"),
        b"\xff",
    ):
        assert not is_ours(credential), credential


# --- what is kept --------------------------------------------------------------------------------


def test_nothing_that_is_kept_of_a_key_tells_its_secret() -> None:
    key, words = ApiKey.create(Role.PREDICTOR, ("*",))
    secret = words.removeprefix(f"sg_{key.id}_")
    assert key.digest == hashlib.sha256(secret.encode()).hexdigest() == digest_of(secret.encode())
    assert secret not in repr(dataclasses.asdict(key))
    assert len(secret) >= 43  # 32 random bytes
    access = Access({key.id: key}, is_required=True, wall=Clock())
    assert repr(access) == "<Access 1 keys, required=True>"


def test_no_two_keys_are_alike() -> None:
    made = [ApiKey.create(Role.PREDICTOR) for _ in range(100)]
    assert len({key.id for key, _ in made}) == len({words for _, words in made}) == 100


def test_what_was_never_a_key_is_refused() -> None:
    good = {"id": "abcd", "digest": "0" * 64, "role": Role.ADMIN}
    for change in (
        *({"id": wrong} for wrong in ("", "abc", "ABCD", "a_bc")),
        *({"digest": wrong} for wrong in ("", "0" * 63, "G" * 64)),
        *({"models": wrong} for wrong in ((), ("a", ""))),
    ):
        refusal(Invalid, ApiKey, **{**good, **change})


def test_what_is_remembered_is_bounded() -> None:
    keys = [ApiKey.create(Role.PREDICTOR) for _ in range(20)]
    one = Access({key.id: key for key, _ in keys}, is_required=True, wall=Clock(), remembered=8)
    for key, words in keys:
        for spelling in (b"Bearer ", b"bearer ", b"Bearer  "):
            found = one.check(spelling + words.encode(), Act.CALL, f"model-{key.id}")
            assert found == key
    assert one.remembers <= (8, 8)


def test_what_fails_or_is_longer_than_the_names_of_models_is_not_remembered() -> None:
    scene = Scene(Role.PREDICTOR, "digits", "m*")
    for number in range(100):
        scene.outcome(Act.ASK, "", b"Bearer sg_0123456789_%043d" % number)
        scene.outcome(Act.CALL, f"unknown-{number}")
    assert scene.outcome(Act.CALL, "m" * 256) == "yes"
    assert scene.access.remembers == (1, 0)  # the credential that was good
