"""Contracts: golden cases of a version, and the files they are kept in.

    contract/contract.json   {"format": 1, "cases": [{"file": "case-0.npz", "name": "a seven",
                              "atol": 1e-4, "rtol": 1e-3, "top1": 0.99,
                              "outputs": {"scores": {"atol": 1e-2}},
                              "datatypes": {"x": "BF16"}}]}
    contract/case-0.npz      arrays `input/NAME` and `output/NAME`, as they go over the wire

Only `file` is needed. `outputs` holds what is said of one output alone; `top1` may also be true,
for every row. `datatypes` names inputs whose datatype numpy does not have. See
`expected_outputs.py` for what makes an answer right.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid
from serve.core.versions import CONTRACT
from serve.tensors.archive import read_archive, write_archive
from serve.tensors.datatypes import DATATYPES, Array
from serve.tensors.expected_outputs import NOTHING_SAID, Tolerance, judge_output

FORMAT = 1
INDEX = f"{CONTRACT}/contract.json"
MOST_CASES = 100
MOST_BYTES = 64 << 20  # of all files together, and of one archive when it is unpacked
MOST_MEMORY = 256 << 20  # bytes of all arrays together
_LARGEST = 1e300  # of a tolerance
_INPUT, _OUTPUT = "input/", "output/"
_TOLERANCE = {"atol", "rtol", "top1"}
_CASE = {"file", "name", "outputs", "datatypes"} | _TOLERANCE
_NO_TOLERANCES: Mapping[str, Tolerance] = MappingProxyType({})
_NO_DATATYPES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Inputs, and the outputs that they must give. `tolerances` are of single outputs."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    name: str = ""
    tolerance: Tolerance = NOTHING_SAID
    tolerances: Mapping[str, Tolerance] = field(default_factory=lambda: _NO_TOLERANCES)
    datatypes: Mapping[str, str] = field(default_factory=lambda: _NO_DATATYPES)

    @property
    def size(self) -> int:
        """About how many bytes of memory its arrays take."""
        return sum(_size(array) for array in (*self.inputs.values(), *self.outputs.values()))


@dataclass(frozen=True, slots=True, eq=False)
class Contract:
    """What a version must answer wherever it is admitted."""

    cases: tuple[Case, ...]

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return sum(case.size for case in self.cases)

    @classmethod
    def read(cls, files: Mapping[str, bytes]) -> "Contract":
        """Read the files below `contract/` by their whole paths; `Invalid` says what is wrong."""
        if INDEX not in files:
            raise Invalid("the contract has no index", why=f"{INDEX} is missing")
        if sum(map(len, files.values())) > MOST_BYTES:
            raise _too_large()
        entries = _entries(files[INDEX])
        cases: list[Case] = []
        left = MOST_MEMORY
        for number, entry in enumerate(entries):
            path = f"{CONTRACT}/{entry['file']}"
            if path not in files:
                raise Invalid(f"case {number} of the contract names {path[:150]}, which is missing")
            try:
                case = _case(entry, read_archive(files[path], most=MOST_BYTES))
            except Invalid as error:
                raise Invalid(f"{path} is not a golden case", why=str(error)) from error
            cases.append(case)
            left -= case.size
            if left < 0:
                raise _too_large()
        return cls(tuple(cases))


def read_contract(folder: Path) -> Contract:
    """The contract in a model's folder, without any case where there is none; `Invalid`."""
    if not (folder / INDEX).is_file():
        return Contract(())
    paths = [path for path in (folder / CONTRACT).iterdir() if path.is_file()]
    if sum(path.stat().st_size for path in paths) > MOST_BYTES:
        raise _too_large()
    return Contract.read({f"{CONTRACT}/{path.name}": path.read_bytes() for path in paths})


def judge(case: Case, answer: Mapping[str, Array]) -> str:
    """Empty when the answer is right, else why not: the first output that is wrong."""
    for name, expected in case.outputs.items():
        if name not in answer:
            return f"output '{name}' is missing"
        own = case.tolerances.get(name, NOTHING_SAID)
        why = judge_output(name, answer[name], expected, own, case.tolerance)
        if why:
            return why
    return ""


def cases_from_npz(
    data: bytes,
    *,
    inputs: Collection[str],
    outputs: Collection[str],
    name: str = "",
    tolerance: Tolerance = NOTHING_SAID,
) -> tuple[Case, ...]:
    """The golden case in a file that people made, for a model with these inputs and outputs.

    Its arrays are `input/NAME` and `output/NAME`, or plain `NAME` where only one of the two has it.
    """
    found: dict[str, dict[str, Array]] = {_INPUT: {}, _OUTPUT: {}}
    for key, array in read_archive(data, most=MOST_BYTES).items():
        role, rest = _role(key, inputs, outputs)
        if rest in found[role]:
            raise Invalid(f"the file has {role}{rest} twice")
        found[role][rest] = array
    return (_checked(Case(found[_INPUT], found[_OUTPUT], name, tolerance)),)


def write_contract(cases: Sequence[Case]) -> Mapping[str, bytes]:
    """The files of a contract by their whole paths; equal cases give equal bytes."""
    if not 0 < len(cases) <= MOST_CASES:
        raise Invalid(f"a contract has 1 to {MOST_CASES} cases, not {len(cases)}")
    files: dict[str, bytes] = {}
    entries = []
    for number, case in enumerate(cases):
        _checked(case)
        arrays = {_INPUT + name: array for name, array in case.inputs.items()}
        arrays |= {_OUTPUT + name: array for name, array in case.outputs.items()}
        path = f"case-{number}.npz"
        files[f"{CONTRACT}/{path}"] = write_archive(arrays, most=MOST_BYTES)
        own = {name: _said(one) for name, one in case.tolerances.items()}
        entry = {"file": path, "name": case.name, **_said(case.tolerance)}
        entry |= {"outputs": own} if own else {}
        entry |= {"datatypes": dict(case.datatypes)} if case.datatypes else {}
        entries.append(entry)
    page = {"format": FORMAT, "cases": entries}
    files[INDEX] = json.dumps(page, indent=1, sort_keys=True).encode()
    if sum(map(len, files.values())) > MOST_BYTES or Contract(tuple(cases)).size > MOST_MEMORY:
        raise _too_large()
    return MappingProxyType(files)


def _entries(data: bytes) -> list[dict[str, Any]]:
    """The entries of contract.json, each with its `file`."""
    try:
        page = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{INDEX} is not JSON", why=str(error)) from error
    if not isinstance(page, dict) or page.get("format") != FORMAT:
        raise Invalid(f"{INDEX} does not have format {FORMAT}")
    entries = page.get("cases")
    if not isinstance(entries, list) or not 0 < len(entries) <= MOST_CASES:
        raise Invalid(f"{INDEX} needs 'cases', a list of 1 to {MOST_CASES}")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
            raise Invalid(f"case {number} of {INDEX} needs a 'file'")
        if unknown := sorted(set(entry) - _CASE):
            raise Invalid(f"case {number} of {INDEX} has the unknown field '{unknown[0][:40]}'")
    return entries


def _case(entry: Mapping[str, Any], arrays: Mapping[str, Array]) -> Case:
    """The case that an entry and its arrays make."""
    own, datatypes = entry.get("outputs", {}), entry.get("datatypes", {})
    if not isinstance(own, dict) or not isinstance(datatypes, dict):
        raise Invalid("'outputs' and 'datatypes' must be objects with a field for each tensor")
    inputs: dict[str, Array] = {}
    outputs: dict[str, Array] = {}
    for key, array in arrays.items():
        role, rest = _role(key, (), ())
        (inputs if role == _INPUT else outputs)[rest] = array
    return _checked(
        Case(
            MappingProxyType(inputs),
            MappingProxyType(outputs),
            str(entry.get("name", "")),
            _tolerance({name: entry[name] for name in _TOLERANCE & entry.keys()}),
            MappingProxyType({name: _tolerance(said) for name, said in own.items()}),
            MappingProxyType(dict(datatypes)),
        )
    )


def _checked(case: Case) -> Case:
    if not case.inputs or not case.outputs:
        raise Invalid(
            "a golden case needs inputs and expected outputs",
            why=f"this one has {len(case.inputs)} inputs and {len(case.outputs)} outputs",
            try_this="name the arrays input/NAME and output/NAME",
        )
    if lost := sorted(set(case.tolerances) - set(case.outputs)):
        raise Invalid(f"there is a tolerance for '{lost[0]}', which is not an output")
    for name, datatype in case.datatypes.items():
        if name not in case.inputs or datatype not in DATATYPES:
            raise Invalid(f"'{name}' cannot be an input with datatype {datatype!r}")
    return case


def _tolerance(said: Any) -> Tolerance:
    if not isinstance(said, dict) or set(said) - _TOLERANCE:
        raise Invalid(f"a tolerance has only the fields {', '.join(sorted(_TOLERANCE))}")
    for name, value in said.items():
        if name == "top1" and isinstance(value, bool):
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < _LARGEST or (name == "top1" and not 0 < value <= 1):
            raise Invalid(f"{name} cannot be {json.dumps(value)[:40]}")
    top1 = said.get("top1")
    if isinstance(top1, bool):
        top1 = 1.0 if top1 else None
    return Tolerance(_number(said.get("atol")), _number(said.get("rtol")), _number(top1))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _said(tolerance: Tolerance) -> dict[str, float]:
    """What a tolerance says, as JSON."""
    values = {"atol": tolerance.atol, "rtol": tolerance.rtol, "top1": tolerance.top1}
    return {name: value for name, value in values.items() if value is not None}


def _role(key: str, inputs: Collection[str], outputs: Collection[str]) -> tuple[str, str]:
    """Whether an array is an input or an output, and its name there."""
    for role in (_INPUT, _OUTPUT):
        if key.startswith(role):
            return role, key.removeprefix(role)
    if (key in inputs) != (key in outputs):
        return (_INPUT if key in inputs else _OUTPUT), key
    why = "the model has an input and an output with this name" if key in inputs else ""
    if inputs and not why:
        why = f"the inputs are {', '.join(inputs)}; the outputs are {', '.join(outputs)}"
    raise Invalid(
        f"array '{key}' is neither an input nor an output",
        why=why,
        try_this=f"name it {_INPUT}{key} or {_OUTPUT}{key}",
    )


def _size(array: Array) -> int:
    if array.dtype.kind != "O":
        return array.nbytes
    return sum(len(element) + 50 for element in array.ravel().tolist())  # an object each


def _too_large() -> Invalid:
    return Invalid(
        "the contract is too large",
        why=f"at most {MOST_BYTES >> 20} MiB of files and {MOST_MEMORY >> 20} MiB in memory",
    )
