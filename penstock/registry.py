"""Finds components. A component is a folder; this is where its name becomes its code.

Nothing here imports a component until it is asked for, so ``penstock list`` needs neither Spark nor a driver. Packages
outside ours join by an entry point in the group ``penstock.components`` that names their ``Component``.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError


class Kind(StrEnum):
    SOURCE = "source"
    STEP = "step"
    DESTINATION = "destination"

    @property
    def folder(self) -> str:
        return f"{self}s"


@dataclass(frozen=True)
class Component:
    """A component's card: ``config`` and ``implementation`` are ``module:Class``, imported when first wanted."""

    kind: Kind
    name: str
    summary: str
    config: str
    implementation: str

    @property
    def readme(self) -> Path:
        module = importlib.import_module(self.config.partition(":")[0])
        return Path(str(module.__file__)).with_name("README.md")

    def config_class(self) -> Any:
        return _load(self.config)

    def implementation_class(self) -> Any:
        return _load(self.implementation)

    def warm_up(self) -> None:
        """Compile the functions of its own; a component that has some says how in ``warm_up.py`` of its folder."""
        folder = self.config.partition(":")[0].rpartition(".")[0]
        if folder and importlib.util.find_spec(f"{folder}.warm_up") is not None:
            importlib.import_module(f"{folder}.warm_up").warm_up()


def built_in(package: str, summary: str) -> Component:
    """The card of a component of ours: its folder gives its kind and its name, which are also those of its classes, and
    has the usual files."""
    _, folder, name = package.split(".")
    kind = Kind(folder.removesuffix("s"))
    stem = name.title().replace("_", "")
    implementation = stem if kind is Kind.STEP else f"{stem}{kind.title()}"
    return Component(kind, name, summary, f"{package}.config:{stem}Config", f"{package}.{kind}:{implementation}")


@cache
def components(kind: Kind) -> dict[str, Component]:
    """Every component of a kind by name, ours first, then those of other packages."""
    found: dict[str, Component] = {}
    # Folders without a README hold what components share.
    for readme in sorted(Path(__file__).parent.glob(f"{kind.folder}/*/README.md")):
        name = readme.parent.name
        found[name] = importlib.import_module(f"penstock.{kind.folder}.{name}").component
    for entry in entry_points(group="penstock.components"):
        component = entry.load()
        if component.kind is kind:
            found.setdefault(component.name, component)
    return found


def component(kind: Kind, name: str) -> Component:
    known = components(kind)
    if name not in known:
        raise PenstockError(
            "PEN-CFG-010", f"there is no {kind} called '{name}'.", f"Known: {', '.join(sorted(known))}."
        )
    return known[name]


def _load(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)
