"""The container files of k8s/images as objects, one for each image that they say how to build.

They are read, not built: what they start with, which extras they install, what the image sets and
whom it runs as.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BUILT = re.compile(r"^#.*docker build -f (\S+) -t (\S+)(.*)$", re.MULTILINE)
_SAID = re.compile(r"--build-arg (\w+)=(\S+)")


def images_of(folder: Path) -> Iterator[dict[str, Any]]:
    """An object of kind `Image` for each `docker build … -t NAME` in the comments."""
    files = sorted(folder.glob("*.Dockerfile"))
    for file in files:
        text = file.read_text("utf-8")
        for _, name, rest in _BUILT.findall(text):
            yield {
                "kind": "Image",
                "metadata": {"name": name},
                **_last(text, dict(_SAID.findall(rest))),
            }


def _last(text: str, given: dict[str, str]) -> dict[str, Any]:
    """What the last stage of a container file is, and the extras of all stages."""
    values: dict[str, str] = {}
    image: dict[str, Any] = {"env": {}, "extras": []}
    for word, rest in _instructions(text):
        for name, value in values.items():
            rest = rest.replace(f"${{{name}}}", value)
        match word:
            case "ARG":
                name, _, value = rest.partition("=")
                values[name] = given.get(name, value)
            case "FROM":
                image["from"] = rest.split()[0]
                image["env"] = {}
            case "ENV":
                image["env"] |= dict(re.findall(r"(\w+)=(\S+)", rest))
            case "USER" | "STOPSIGNAL" | "WORKDIR":
                image[word.lower()] = rest
            case "EXPOSE":
                image["expose"] = [int(one) for one in rest.split()]
            case "ENTRYPOINT" | "CMD":
                image[word.lower()] = json.loads(rest)
        image["extras"] += [
            extra for one in re.findall(r"servegate\[([\w,-]+)\]", rest) for extra in one.split(",")
        ]
    return image


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        yield word.upper(), " ".join(rest.split())
