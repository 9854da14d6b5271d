"""Triton's own settings, for traces and logs: what was decided is set on one replica, once."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from serve.control.storage.store import Key
from serve.core.errors import ServegateError, Unavailable
from serve.triton.control import Settings, TritonControl

_log = logging.getLogger("servegate.reconciler")


class ServerSettings:
    """What is set on a replica. `wanted` gives what was decided, by kind and model."""

    def __init__(
        self,
        name: str,
        control: TritonControl,
        *,
        wanted: Callable[[], Mapping[Key, Mapping[str, Any]]],
    ) -> None:
        self._name = name
        self._control = control
        self._wanted = wanted
        self._set: dict[Key, Settings] = {}

    def __repr__(self) -> str:
        return f"<ServerSettings {self._name} {sorted(self._set)}>"

    @property
    def are_set(self) -> bool:
        """Whether what was decided is in force."""
        return self._set == self._wanted()

    def forget(self) -> None:
        """The replica may be another process by now."""
        self._set.clear()

    async def apply(self) -> None:
        """Set what is lacking; what the replica refuses is told, and not tried again."""
        for key, wanted in self._wanted().items():
            if self._set.get(key) != wanted:
                try:
                    await self._control.settings(*key, wanted)
                except Unavailable:
                    return  # the watch will say so
                except ServegateError as error:
                    _log.warning("replica %s refuses %s settings: %s", self._name, key[0], error)
                self._set[key] = wanted
