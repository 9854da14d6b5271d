"""The checks of an uploaded version, before any Triton sees it: what it is, and all that is wrong.

A version that passes has its canonical configuration, its group, its signature, and the documents
that people and clients read. One that does not is told everything at once, not one finding per
push. Nothing is written here.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from serve.control.artifacts.contents import Contents, scratch
from serve.control.publication.ensembles import PinnableVersions, pin
from serve.control.versions import PublishedVersion
from serve.core.errors import CheckFailed, CodeNotAllowed, Invalid
from serve.core.flavours import VersionFlavours
from serve.core.versions import MODEL_CARD, OUTPUTS, PREPROCESSING, Layout, VersionFile
from serve.tensors.output_kinds import label_files, parse_outputs
from serve.tensors.signature import ModelSignature
from serve.triton import config as triton_config
from serve.triton.canonical import canonical, canonical_text
from serve.triton.config import Configuration
from serve.triton.config_generation import generate
from serve.triton.foreign_code import code_in
from serve.triton.lint import Diagnosis, LintSubject, Severity, lint

ReadModel = Callable[[Path], Awaitable[ModelSignature]]
T = TypeVar("T")
MOST_FINDINGS, LONGEST = 100, 500  # that a version keeps, and characters of each


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checks have found. `config`, `flavours`: canonical texts; `findings`: warnings."""

    config: str
    flavours: str
    group: str
    findings: tuple[str, ...]
    has_contract: bool
    signature: Mapping[str, Any]
    output_labels: Mapping[str, tuple[str, ...]]
    preprocessing: Mapping[str, Any]
    output_kinds: Mapping[str, Any]
    card: Mapping[str, Any]


class Checker:
    """Checks one version at a time. Model files are brought to `folder` and read by `read_model`;
    `allow_code` is the operator's word."""

    def __init__(
        self,
        contents: Contents,
        parts: PinnableVersions,
        *,
        folder: Path,
        read_model: ReadModel,
        allow_code: bool,
    ) -> None:
        self._contents = contents
        self._parts = parts
        self._folder = folder
        self._read_model = read_model
        self._allow_code = allow_code

    def __repr__(self) -> str:
        return f"<Checker code={'allowed' if self._allow_code else 'refused'}>"

    async def check(self, version: PublishedVersion, files: Sequence[VersionFile]) -> Checked:
        """What this version is; `CheckFailed` with every finding, or `CodeNotAllowed`."""
        layout = Layout.of(files)
        faults = _Faults(f"version {version.number} of model '{version.model}' failed its checks")
        subject, text = await self._subject(version, layout, files, faults)
        found = await asyncio.to_thread(lint, subject)  # seconds, when there are thousands of steps
        warnings = _sorted_out(found, faults)
        pinned, labels = None, None
        if not faults:  # else they would say in other words what lint has said
            pinned = await faults.catch(self._pinned(text))
            texts = dict(triton_config.parse(text).label_files)
            if subject.output_kinds:
                texts |= label_files(parse_outputs(subject.output_kinds))
            labels = await faults.catch(self._contents.labels(layout, texts))
        await faults.catch(self._contents.contract(layout))
        preprocessing = await faults.catch(self._contents.document(layout, PREPROCESSING))
        card = await faults.catch(self._contents.document(layout, MODEL_CARD))
        if faults or pinned is None:
            raise faults.all()
        signature, flavours = subject.signature, VersionFlavours.parse(subject.flavours).text()
        return Checked(
            config=canonical_text(pinned),
            flavours=flavours,
            group=group_of(pinned, layout.model, flavours),
            findings=warnings,
            has_contract=bool(layout.contract),
            signature=MappingProxyType(signature.to_json() if signature else {}),
            output_labels=MappingProxyType(labels or {}),
            preprocessing=MappingProxyType(preprocessing or {}),
            output_kinds=MappingProxyType(subject.output_kinds.get("outputs", {})),
            card=MappingProxyType(card or {}),
        )

    async def _subject(
        self,
        version: PublishedVersion,
        layout: Layout,
        files: Sequence[VersionFile],
        faults: "_Faults",
    ) -> tuple[LintSubject, str]:
        """The version as lint looks at it, and its configuration as text, given or generated."""
        given = await self._contents.text(layout.config) if layout.config else ""
        config = triton_config.parse(given)
        self._refuse_code(config, files)
        bare = LintSubject(
            version.model,
            config if given else None,
            tuple(files),
            flavours=await self._contents.flavours(layout),
            plans=await self._contents.plans(layout),
            preprocessing=await faults.catch(self._contents.document(layout, PREPROCESSING)) or {},
            output_kinds=await faults.catch(self._contents.document(layout, OUTPUTS)) or {},
            unverified=await self._contents.unverified(layout),
        )
        signatures = await faults.catch(self._signatures(layout, bare)) or {}
        signature = signatures.pop("", None)
        text = given or await faults.catch(self._generated(version.model, signature))
        if not text:
            raise faults.all()
        config = triton_config.parse(text)
        subject = replace(
            bare,
            config=config,
            signature=signature,
            signatures=signatures,
            others=self._others(config),
        )
        for each in subject.flavoured.values():
            self._refuse_code(each.config, files)
        return subject, text

    def _refuse_code(self, config: Configuration | None, files: Sequence[VersionFile]) -> None:
        why = code_in(config, files) if config is not None else ""
        if why and not self._allow_code:
            raise CodeNotAllowed(why)

    async def _generated(self, model: str, signature: ModelSignature | None) -> str:
        """A configuration for a model file that says enough."""
        if signature is None or signature.format != "onnx":
            raise Invalid(
                "config.pbtxt is missing", why="Servegate generates it only for ONNX files"
            )
        return generate(model, signature)

    async def _pinned(self, text: str) -> Configuration:
        return pin(canonical(text), self._parts)

    async def _signatures(self, layout: Layout, subject: LintSubject) -> dict[str, ModelSignature]:
        """What the model file itself says, under an empty name, and those of flavours under theirs.

        Files that nobody here can read are left out.
        """
        readable = {"": subject.readable} if subject.readable else {}
        readable |= subject.readable_flavours
        if not readable:
            return {}
        async with scratch(self._folder) as folder:
            await self._contents.bring(layout.version, folder)
            place = folder / str(layout.number)
            return {name: await self._read_model(place / file) for name, file in readable.items()}

    def _others(self, config: Configuration) -> Mapping[str, Configuration]:
        """The configurations of what an ensemble's steps name."""
        found = {}
        for step in config.message.ensemble_scheduling.step:
            part = self._parts.meant(step.model_name, int(step.model_version))
            if part is not None and part.configuration is not None:
                found[step.model_name] = part.configuration
        return MappingProxyType(found)


class _Faults:
    """Everything that is wrong with one version, to be told at once."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._found: list[str] = []

    def __repr__(self) -> str:
        return f"<_Faults {len(self._found)}>"

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, *sentences: str) -> None:
        """More that is wrong; nothing is told twice."""
        self._found = list(dict.fromkeys((*self._found, *sentences)))

    async def catch(self, work: Awaitable[T]) -> T | None:
        """What the work gives; None when it finds a fault."""
        try:
            return await work
        except CheckFailed as error:
            self.add(*error.findings)
        except Invalid as error:
            self.add(str(error))
        return None

    def all(self) -> CheckFailed:
        """All of them as one error."""
        return CheckFailed(self._what, _not_too_many(self._found))


def _sorted_out(found: Sequence[Diagnosis], faults: _Faults) -> tuple[str, ...]:
    """The warnings; errors become faults."""
    faults.add(*(str(one) for one in found if one.severity is Severity.ERROR))
    return _not_too_many([str(one) for one in found if one.severity is not Severity.ERROR])


def _not_too_many(findings: Sequence[str]) -> tuple[str, ...]:
    """The first of them, which are kept with the version and shown, and how many more there are."""
    more = len(findings) - MOST_FINDINGS
    told = tuple(one if len(one) <= LONGEST else f"{one[:LONGEST]}…" for one in findings)
    return told if more <= 0 else (*told[:MOST_FINDINGS], f"and {more} more")


def group_of(config: Configuration, beside: Sequence[VersionFile], flavours: str = "") -> str:
    """The digest of all that versions under one name in Triton share; hexadecimal."""
    lines = [config.digest, *(f"{file.path} {file.size} {file.sha256}" for file in sorted(beside))]
    lines += [flavours] if flavours else []
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
