"""``penstock schema``: JSON Schema for editors and checkers."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import JsonOption
from penstock.cli.screen import print_json


def schema(
    what: Annotated[
        str, typer.Argument(help="`config` for a whole pipeline, or a component such as step/where.")
    ] = "config",
    json: JsonOption = True,
) -> None:
    """Print the JSON Schema of a pipeline's config, or of one component's options."""
    if what == "config":
        from penstock.config.schema import pipeline_schema

        print_json(pipeline_schema())
        return
    from penstock.cli.naming import find_component

    print_json(find_component(what).config_class().model_json_schema())
