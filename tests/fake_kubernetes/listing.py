"""Lists, whole or by pages: the pages of a list are of one moment, whatever happens meanwhile."""

import base64
import json
from collections import OrderedDict
from itertools import count
from typing import Any

from fake_kubernetes.kinds import Kind
from fake_kubernetes.objects import Objects
from fake_kubernetes.refusals import Refusal, continue_too_old
from fake_kubernetes.selecting import Test

Object = dict[str, Any]

_MOST_KEPT = 16


class Pages:
    """The lists of which somebody has read the beginning."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, list[Object]]] = OrderedDict()
        self._numbers = count()

    def forget(self) -> None:
        self._kept.clear()

    def first(self, objects: Objects, kind: Kind, namespace: str, test: Test, limit: int) -> Object:
        found = [each for each in objects.listed(kind, namespace) if test(each)]
        return self._page(kind, objects.version, found, 0, limit)

    def next(self, kind: Kind, token: str, limit: int) -> Object:
        try:
            name, start = json.loads(base64.b64decode(token))
        except ValueError as error:
            raise Refusal(400, "continue key is not valid") from error
        if name not in self._kept:
            raise continue_too_old()
        version, found = self._kept[name]
        return self._page(kind, version, found, start, limit)

    def _page(
        self, kind: Kind, version: int, found: list[Object], start: int, limit: int
    ) -> Object:
        end = start + limit if limit else len(found)
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if end < len(found):
            name = f"{kind.plural}-{next(self._numbers)}"
            self._kept[name] = version, found
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            metadata["continue"] = base64.b64encode(json.dumps([name, end]).encode()).decode()
            metadata["remainingItemCount"] = len(found) - end
        return {
            "kind": f"{kind.name}List",
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": found[start:end],
        }
