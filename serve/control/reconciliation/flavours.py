"""Flavouring: in which form one replica holds a version that has several.

| a flavour, in the order of preference            | then                                          |
|--------------------------------------------------|-----------------------------------------------|
| needs what is not known of the replica's machine | the next one                                  |
| was loaded there and failed, or answered wrongly | the next one, until something else is wanted  |
| neither                                          | it is loaded; the name in Triton is the same  |
| is the last that is left                         | it fails and is tried again like any model    |

The base, config.pbtxt by itself, is the last where there is one. A replica that can run none of
them holds nothing of the version.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from serve.control.fleet import Fleet
from serve.control.observations import FlavourChoice, Held
from serve.control.reconciliation.plan import Load
from serve.control.registry import Loadable
from serve.core.errors import Invalid
from serve.core.flavours import Flavour, Machine
from serve.triton.config import Configuration
from serve.triton.flavoured import configured, recognised

Forms = Mapping[str, Configuration | str]  # by flavour; a text says why it cannot run here
Content = tuple[str, str]  # the fingerprint, and the digest of the configuration without flavour
_NONE: Mapping[str, str] = MappingProxyType({})
_NOTHING: Content = ("", "")


class Flavouring:
    """Chooses for one replica, and remembers what has failed there.

    `changed` hears the name in Triton of what has to be loaded in another form.
    """

    def __init__(
        self, name: str, machine: Machine, fleet: Fleet, *, changed: Callable[[str], None]
    ) -> None:
        self._name = name
        self._machine = machine
        self._fleet = fleet
        self._changed = changed
        self._failed: dict[str, tuple[Content, Mapping[str, str]]] = {}  # by name: of what, and why
        self._known: dict[str, tuple[Content, Forms]] = {}  # by name: of what, and forms
        self._lost = False

    def __repr__(self) -> str:
        return f"<Flavouring {self._name} {self._machine} failed={sorted(self._failed)}>"

    def chosen(self, models: Mapping[str, Loadable]) -> Mapping[str, Loadable]:
        """What of it can run here, with the configurations of the flavours; tells the fleet."""
        found: dict[str, Loadable] = {}
        told: dict[str, FlavourChoice] = {}
        for name, one in models.items():
            if one.flavours.preferred and one.configuration is not None:
                chosen, told[name] = self._choose(one)
                if chosen is not None:
                    found[name] = chosen
            else:
                found[name] = one
        self._fleet.choose(self._name, told)
        self._known = {name: known for name, known in self._known.items() if name in told}
        return MappingProxyType(found)

    def _choose(self, one: Loadable) -> tuple[Loadable | None, FlavourChoice]:
        forms, failed = self._forms(one), self._failures(one)
        able = _able(forms)
        lacking = {name: why for name, why in forms.items() if isinstance(why, str)}
        left = [name for name in able if name not in failed] or list(able)[-1:]
        told = FlavourChoice(left[0] if left else "", MappingProxyType(lacking), failed)
        if not left:
            return None, told
        return replace(one, configuration=able[left[0]], flavour=left[0]), told

    def _forms(self, one: Loadable) -> Forms:
        """The configurations of its flavours here, or why there is none, in their order."""
        assert one.configuration is not None
        content = (one.fingerprint, one.configuration.digest)
        known = self._known.get(one.name)
        if known is None or known[0] != content:
            forms = {each.name: self._form(one, each) for each in one.flavours.candidates}
            known = self._known[one.name] = content, forms
        return known[1]

    def _form(self, one: Loadable, flavour: Flavour) -> Configuration | str:
        assert one.configuration is not None
        why = flavour.needs.lacking(self._machine)
        if why:
            return why
        try:
            return configured(one.configuration, flavour, self._machine.engine_cache)
        except Invalid as error:
            return str(error)

    def _failures(self, one: Loadable) -> Mapping[str, str]:
        """The flavours that have failed here, of this very content, and why."""
        content, failed = self._failed.get(one.name, (_NOTHING, _NONE))
        known, _ = self._known.get(one.name, (_NOTHING, _NONE))
        return failed if content == known else _NONE

    def falls_back(self, step: Load, reason: str) -> bool:
        """A load has failed; whether another flavour is left, which will be tried at once."""
        one = step.model
        failed = {**self._failures(one), one.flavour: reason}
        content, forms = self._known.get(one.name, (_NOTHING, _NONE))
        if not one.flavour or all(name in failed for name in _able(forms)):
            return False
        self._failed[one.name] = content, MappingProxyType(failed)
        self._changed(one.name)
        return True

    def recognise(self, one: Loadable, found: Configuration) -> Loadable:
        """What Triton says that it runs under this name, as one of the flavours or the base."""
        assert one.configuration is not None
        flavour = recognised(one.flavours, one.configuration, found)
        own = configured(one.configuration, flavour, self._machine.engine_cache)
        return replace(one, configuration=own, flavour=flavour.name)

    def forget(self, name: str) -> None:
        """Somebody wants this to be tried again from the first flavour on."""
        self._failed.pop(name, None)

    def lost(self) -> None:
        """The replica does not answer."""
        self._lost = True

    def back(self, held: Held) -> None:
        """It answers and holds this: what comes back empty is a new process, and may do better."""
        if self._lost and not held:
            self._failed.clear()
        self._lost = False


def _able(forms: Forms) -> Mapping[str, Configuration]:
    """Those that can run here."""
    return {name: form for name, form in forms.items() if not isinstance(form, str)}
