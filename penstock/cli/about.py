"""``penstock about``: what a component does and the options that it takes, from its own README and config class."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._support.options import JsonOption
from penstock.cli._support.screen import JsonValue, console, print_json, show, table

if TYPE_CHECKING:
    from penstock.registry import Component


def about(
    name: Annotated[
        str | None, typer.Argument(help="A component: where, or source/file where two share a name.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what a component does and its options; without a name, the versions that are installed."""
    if name is None:
        _versions(json)
        return
    from penstock.cli._support.component_names import find_components

    found = find_components(name)
    if json:
        print_json([component_object(card) for card in found])
        return
    for card in found:
        _show(card)


def component_object(card: Component) -> dict[str, JsonValue]:
    from penstock.cli._support.option_list import options_of

    return {
        "kind": str(card.kind),
        "name": card.name,
        "summary": card.summary,
        "readme": card.readme.read_text(),
        "options": [asdict(option) for option in options_of(card.config_class())],
    }


def _show(card: Component) -> None:
    from penstock.cli._support.option_list import options_of

    screen = console()
    readme = card.readme.read_text()
    if screen.is_terminal:
        from rich.markdown import Markdown

        screen.print(Markdown(readme))
    else:
        screen.print(readme, soft_wrap=True)
    options = [
        (option.name, option.type, "required" if option.required else option.default_text, option.description)
        for option in options_of(card.config_class())
    ]
    title = f"Options of {card.kind} {card.name}"
    show("", table("option", "type", "default", "description", rows=options, title=title))


def _versions(as_json: bool) -> None:
    import platform
    from importlib.metadata import version

    from penstock import __version__

    packages = {name: version(name) for name in ("pyspark", "pyarrow", "duckdb", "granian")}
    installed = {"penstock": __version__, "python": platform.python_version(), **packages}
    if as_json:
        print_json(installed)
        return
    for name, number in installed.items():
        typer.echo(f"{name:<9} {number}")
    typer.echo("\nComponents: penstock list. One of them: penstock about NAME")
