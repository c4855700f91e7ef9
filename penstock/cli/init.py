"""``penstock init``: a folder with a pipeline that runs as it is, to change from there."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._support.options import JsonOption
from penstock.cli._support.screen import print_json
from penstock.errors import PenstockError

_TEMPLATES = Path(__file__).with_name("templates")
_FILES = {
    "pipeline.yaml": "pipeline.yaml",
    "events.ndjson": "events.ndjson",
    "tests/warehouse.yaml": "tests/warehouse.yaml",
    "gitignore": ".gitignore",
}
SCHEMA_FILE = "penstock.schema.json"


def init(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The folder to make; its name is the pipeline's.")],
    json: JsonOption = False,
) -> None:
    """Make a folder with a pipeline that runs: config, sample events, JSON Schema for your editor."""
    made = [path.relative_to(folder).as_posix() for path in write_project(folder)]
    if json:
        print_json({"folder": str(folder), "files": made})
        return
    typer.echo(f"Made {folder} with {', '.join(made)}.\n")
    typer.echo(f"  cd {folder}")
    typer.echo("  penstock validate      # checks pipeline.yaml")
    typer.echo("  penstock test          # runs the cases in tests/")
    typer.echo("  penstock run --once    # takes events.ndjson in and loads it into a table")
    typer.echo("  penstock status        # what became of every event")
    typer.echo("  penstock failed list   # one line of the sample is broken, on purpose")
    typer.echo("  penstock run           # keeps running, and takes events over HTTP too")


def write_project(folder: Path) -> list[Path]:
    """Write the files; nothing that exists is touched."""
    from penstock.config.json_schema import pipeline_schema

    name = folder.absolute().name
    _require_name(name)
    contents = {target: (_TEMPLATES / source).read_text() for source, target in _FILES.items()}
    contents["pipeline.yaml"] = contents["pipeline.yaml"].replace("{{ name }}", name)
    contents[SCHEMA_FILE] = json_text.dumps(pipeline_schema(), indent=2) + "\n"
    present = [target for target in contents if (folder / target).exists()]
    if present:
        raise PenstockError(
            "PEN-CLI-003", f"{folder} already has {', '.join(present)}.", "Choose another name, or remove them first."
        )
    for target, text in contents.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_text(text)
    return [folder / target for target in contents]


def _require_name(name: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    from penstock.config.pipeline_config import Name

    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        raise PenstockError(
            "PEN-CLI-002",
            f"'{name}' cannot be the name of a pipeline.",
            "Use up to 63 of a-z, 0-9, '-' and '_', beginning with a letter.",
        ) from None
