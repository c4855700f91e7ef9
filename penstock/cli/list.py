"""``penstock list``: the components that a config can name."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli._support.options import JsonOption
from penstock.cli._support.screen import print_json, show, table
from penstock.registry import Kind, components


def list_components(
    kind: Annotated[Kind | None, typer.Argument(help="Only components of this kind.")] = None,
    json: JsonOption = False,
) -> None:
    """List sources, steps and destinations."""
    found = [card for each in Kind if kind in (None, each) for card in components(each).values()]
    if json:
        print_json([{"kind": str(card.kind), "name": card.name, "summary": card.summary} for card in found])
        return
    show(table("kind", "name", "what it does", rows=[(str(card.kind), card.name, card.summary) for card in found]))
