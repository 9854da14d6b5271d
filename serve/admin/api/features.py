"""What a feature of the workbench adds to the admin API and to the pages.

The gateway knows no feature by name: it takes what there is, and goes without the rest.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import APIRouter

from serve.control.tries.desk import Takes
from serve.control.tries.requests import Offered
from serve.tensors.input_forms import GivenInput


@dataclass(frozen=True, slots=True)
class ReusedInput:
    """Input that exists already, for the Try page.

    `fields` are sent with the form; `picture` is a path, or empty.
    """

    text: str
    link: str
    link_text: str
    picture: str
    fields: Mapping[str, str]


class ReusableRows(Protocol):
    """The rows of datasets, as the pages of runs need them."""

    async def names(self) -> Sequence[str]:
        """Of all datasets."""
        ...

    async def add(
        self,
        dataset: str,
        given: Mapping[str, GivenInput] | bytes,
        filename: str,
        label: str,
        author: str,
    ) -> None:
        """Add a row with this input and label; `Invalid` for what cannot be one."""
        ...

    async def row(self, dataset: str, number: int, revision: int | None) -> ReusedInput:
        """One row, as a page shows it; `NotFound`."""
        ...

    async def offered(
        self, dataset: str, number: int, revision: int | None, takes: Takes, model: str
    ) -> dict[str, Offered]:
        """The same row as input of a model; `NotFound`, and `Invalid` where it does not fit."""
        ...


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """One page in the menu, behind the one with path `after`; `also` are paths of its subpages."""

    path: str
    name: str
    after: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecentActivity:
    """A section of a model's page: a template, and what it shows of a model, the newest first."""

    template: str
    of: Callable[[str], Awaitable[Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureWeb:
    """Routers, pages and what other pages show of one feature, the package `name`.

    `api` needs a key, and `publishing` also a gateway to which versions can be pushed. `templates`
    is the package with the folder `templates`, or empty.
    """

    name: str
    api: tuple[APIRouter, ...] = ()
    publishing: tuple[APIRouter, ...] = ()
    pages: tuple[APIRouter, ...] = ()
    templates: str = ""
    menu: tuple[MenuEntry, ...] = ()
    recent: tuple[RecentActivity, ...] = ()
    rows: ReusableRows | None = None
