"""The command line of trtexec, for TensorRT 10 and 11, and the one of docker around it.

A network is strongly typed: it computes in the types that stand in the ONNX file. TensorRT 11 knows
nothing else, TensorRT 10 has to be told. The flags that once chose a precision (`--fp16`, `--int8`,
`--best`) are gone in 11 and stand nowhere here. An FP32 network computes in TF32 unless it may not.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from typing import Any, Self

from serve.workbench.conversion.plans.facts import Hardware
from serve.workbench.conversion.plans.profiles import Profile, listed

TRTEXEC = "/usr/src/tensorrt/bin/trtexec"  # in Triton's images
TENSORRT_11 = (26, 6)  # the first release of Triton with TensorRT 11, its year and month
_RELEASE = re.compile(r":(?P<year>[0-9]{2})\.(?P<month>[0-9]{2})(-|\Z)")
_FOLDER = PurePosixPath("/kit")


@dataclass(frozen=True, slots=True)
class Options:
    """How a plan is built. `workspace`: bytes, 0 for all that the GPU has.

    `timing_cache` is a path, empty for none: it makes the next build of a like network faster.
    """

    profiles: tuple[Profile, ...] = ()
    tf32: bool = False
    version_compatible: bool = False
    hardware: Hardware = Hardware.NONE
    workspace: int = 0
    timing_cache: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        page = {each.name: getattr(self, each.name) for each in fields(self)}
        profiles = [each.to_json() for each in self.profiles]
        return page | {"profiles": profiles, "hardware": str(self.hardware)}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave, among others; KeyError, TypeError or ValueError without it."""
        given = {each.name: page[each.name] for each in fields(cls)}
        given["profiles"] = tuple(map(Profile.from_json, page["profiles"]))
        return cls(**given | {"hardware": Hardware(page["hardware"])})


def major_of(image: str) -> int:
    """The major version of TensorRT in one of Triton's images; 10 for a tag that tells nothing.

    trtexec 11 takes the words of 10 and warns.
    """
    found = _RELEASE.search(image)
    if found is None:
        return 10
    return 11 if (int(found["year"]), int(found["month"])) >= TENSORRT_11 else 10


def trtexec(
    options: Options, *, onnx: str, plan: str, layers: str = "", major: int = 10
) -> tuple[str, ...]:
    """The words after `trtexec`; `layers` is a file for what the engine inspector tells."""
    words = [f"--onnx={onnx}", f"--saveEngine={plan}", "--skipInference"]
    if major < 11:
        words.append("--stronglyTyped")
    words += [f"--{which}Shapes={shapes}" for which, shapes in listed(options.profiles).items()]
    if options.workspace:
        words.append(f"--memPoolSize=workspace:{max(1, options.workspace >> 20)}M")
    if not options.tf32:
        words.append("--noTF32")
    if options.version_compatible:
        words.append("--versionCompatible")
    if options.hardware is not Hardware.NONE:
        words.append(f"--hardwareCompatibilityLevel={options.hardware}")
    if options.timing_cache:
        words.append(f"--timingCacheFile={options.timing_cache}")
    if layers:
        words += ["--profilingVerbosity=detailed", f"--exportLayerInfo={layers}"]
    return tuple(words)


def docker(kit: str, *, image: str, user: int, group: int) -> tuple[str, ...]:
    """The words that build a plan of a kit on this machine's GPU, in the image that will serve it.

    Nothing but the kit's folder can be written, and there is no network: its Triton listens on the
    container's own loopback. TensorRT may run files that it makes in /tmp.
    """
    source = f"source={kit}"
    if set(source) & set(',"'):  # the mount is a row of CSV
        source = '"' + source.replace('"', '""') + '"'
    return (
        *("docker", "run", "--rm", "--gpus", "all", "--network", "none"),
        *("--user", f"{user}:{group}", "--read-only", "--tmpfs", "/tmp:rw,exec"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--shm-size", "1g"),
        *("--env", "HOME=/tmp", "--env", f"IMAGE={image}"),
        *("--mount", f"type=bind,{source},target={_FOLDER}", image),
        *("python3", f"{_FOLDER}/onsite.py", str(_FOLDER)),
    )


def as_line(words: Sequence[str]) -> str:
    """The words as a shell takes them."""
    return shlex.join(words)
