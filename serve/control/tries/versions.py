"""What is recorded with the versions that people try: preprocessing, label texts, golden cases."""

from serve.control.models import Models
from serve.control.recorded import RecordedDocuments, recorded_of
from serve.control.tries.golden_cases import AddedCases, Listed
from serve.control.versions import PublishedVersion
from serve.core.errors import Conflict, ServegateError, UnknownVersion

_MOST = 8  # versions among which a call without one may be divided


class TriedVersions:
    """The questions. A plain folder of models has no golden cases."""

    def __init__(self, models: Models, added: AddedCases) -> None:
        self._models = models
        self._added = added

    def __repr__(self) -> str:
        return f"<TriedVersions of {self._models!r}>"

    def require(self, model: str) -> None:
        """`UnknownModel` when there is none."""
        self._models.get(model)

    def candidates(self, model: str, selector: str) -> tuple[int, ...]:
        """The versions that may answer a call, the likeliest first; empty when none can be told."""
        if selector.isdigit():
            return (int(selector),)
        if selector:
            number = self._models.decisions.labels(model).get(selector)
            return () if number is None else (number,)
        split = self._models.get(model).split
        shares = sorted(split.shares, key=lambda share: -share[1]) if split else ()
        return tuple(number for number, _ in shares)[:_MOST]

    def of(self, model: str, number: int | None) -> RecordedDocuments:
        """What is recorded with a version; nothing for one that nobody knows."""
        try:
            return recorded_of(self._models, model, number)
        except UnknownVersion:
            return RecordedDocuments()

    def flavour(self, model: str, number: int) -> str:
        """In which form the replicas hold a version; several with commas, empty for one only."""
        try:
            forms = self._models.version(model, number).flavours
        except ServegateError:
            return ""
        return ", ".join(sorted(set(forms.values())))

    def published(self, model: str, number: int) -> PublishedVersion:
        """The record of a version that was pushed; `Conflict` for one in a plain folder."""
        self._models.version(model, number)
        found = self._version(model, number)
        if found is None:
            raise Conflict(
                f"version {number} of model '{model}' cannot have a contract",
                why="it is in a plain model repository and was not published",
                try_this=f"servegate model push MODEL_REPOSITORY/{model} {model}",
            )
        return found

    async def cases(self, model: str, number: int) -> tuple[Listed, ...]:
        """The golden cases of a version; none for one in a plain folder."""
        self._models.version(model, number)
        version = self._version(model, number)
        return () if version is None else await self._added.all(version)

    def newest(self, model: str) -> int | None:
        """The version whose examples are shown when nobody says one."""
        main = self._models.main_version(model)
        numbers = [one.number for one in self._models.get(model).versions]
        return main if main is not None else max(numbers, default=None)

    def _version(self, model: str, number: int | None) -> PublishedVersion | None:
        return self._models.decisions.versions.get(model, {}).get(number or 0)
