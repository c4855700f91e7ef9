"""From a YAML file to a ``PipelineConfig``, or to everything that is wrong with it at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from penstock.config.choices import refuse
from penstock.config.component import ReadingContext
from penstock.config.document import MAX_BYTES, Document, Node, parse
from penstock.config.pipeline_config import PipelineConfig, unknown_sources
from penstock.config.problems import ConfigError, Position, Problem
from penstock.config.remarks import remarks
from penstock.config.secrets import secrets_in_options, secrets_in_source, secrets_in_values
from penstock.config.translation import translate
from penstock.redaction import add_secrets


@dataclass(frozen=True)
class Loaded:
    config: PipelineConfig
    document: Document
    remarks: Sequence[Problem]
    """Warnings: not errors, but worth knowing."""


def load(path: str | os.PathLike[str], variables: Mapping[str, str] = os.environ) -> PipelineConfig:
    """The pipeline in a file, with ``${VAR}`` filled in from ``variables``. Raises ``ConfigError``.

    From then on this process knows the config's secrets, and does not show them (``penstock.redaction``).
    """
    return load_with_remarks(path, variables).config


def load_with_remarks(path: str | os.PathLike[str], variables: Mapping[str, str] = os.environ) -> Loaded:
    file = os.fspath(path)
    text = text_of(file)
    add_secrets(secrets_in_source(text, variables))
    document = parse(text, file, variables)
    if document.root is not None:
        add_secrets(secrets_in_values(document.root.value))
    problems = list(document.problems)
    root = document.root
    if root is not None and not isinstance(root.value, dict):
        fix = "Begin with `name:`, `sources:` and `routes:`, without a dash or indentation."
        problems.append(Problem(file, root.position, "", "a pipeline is a mapping of keys to values", fix))
    elif root is not None:
        reading = ReadingContext(Path(file).absolute().parent)
        try:
            config = PipelineConfig.model_validate(root.value, context=reading)
            add_secrets(secrets_in_options(config))
            if not problems:
                return Loaded(config, document, remarks(document, reading))
        except ValidationError as error:
            found = error.errors(include_url=False) + _dangling(root)
            problems += translate(found, document, reading)
    raise ConfigError(file, problems)


_NO_FILE = "Give the path of a pipeline file, or let `penstock init` write one."


def text_of(file: str, no_file: str = _NO_FILE) -> str:
    """A file's text. Raises ``ConfigError`` for one that cannot be read, is too large, or is not UTF-8. ``no_file``
    says what to do about one that is not there."""
    try:
        with Path(file).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(file, [Problem(file, None, "", f"cannot be read: {error.strerror}", no_file)]) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(file, [Problem(file, None, "", "larger than 1 MiB", "Is it the right file?")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        position = Position(before.count(b"\n") + 1, len(before[before.rfind(b"\n") + 1 :].decode()) + 1)
        problem = Problem(file, position, "", "not UTF-8 text", "Save the file in the encoding UTF-8.")
        raise ConfigError(file, [problem]) from None


def _dangling(root: Node) -> list[ErrorDetails]:
    """Routes that name unknown sources, if the config's own check did not run because of other errors."""
    sources, routes = root.entries.get("sources"), root.entries.get("routes")
    if sources is None or routes is None:
        return []
    taken = {
        name: [node.value for node in origin.items or [origin]]
        for name, route in routes.entries.items()
        if (origin := route.entries.get("from")) is not None
    }
    wrong = unknown_sources(sources.entries, taken)
    return refuse(*wrong).errors(include_url=False) if wrong else []
