"""Checks whether the fields in a config's templates exist in events, as far as there are sample events.

Samples are the files of the route's file sources and the cases beside the config (``tests/*.yaml``), a little of each;
if there are none, the newest records of the log. Starts nothing, and loads Arrow only for a log.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import yaml

from penstock.config.component import SampleFile
from penstock.config.document import Node
from penstock.config.loading import Loaded
from penstock.config.pipeline_config import PipelineConfig, RouteConfig
from penstock.config.problems import Position, Problem
from penstock.destinations.sql.stage.template import EventTemplate
from penstock.engine.layout import Layout

_EVENTS, _BYTES = 200, 2**20
"""How much is read of a file, of a log's partition, and of all cases."""

Event = Mapping[str, object]


@dataclass(frozen=True)
class Findings:
    warnings: Sequence[Problem] = ()
    unchecked: Sequence[Problem] = ()
    """Templates for which there are no sample events."""


def check_templates(loaded: Loaded) -> Findings:
    """Every template of every route whose fields no sample has."""
    warnings: list[Problem] = []
    unchecked: list[Problem] = []
    for name, route in loaded.config.routes.items():
        templates = route.to.templates()
        if not templates:
            continue
        samples = list(_samples(loaded, name))
        given = frozenset[str]().union(*(loaded.config.sources[source].adds for source in route.from_))
        for option, source in templates.items():
            template = EventTemplate(source)
            asked = [path for path in template.needed if path[0] not in given]
            position, key = _place(loaded, name, option), f"routes.{name}.to.{option}"
            if asked and not samples:
                fields = ", ".join(map(_spelled, asked))
                what = f"nothing was there to tell whether events have the field {fields}"
                fix = "Add a case to tests/ (penstock test), or check again when the log has events."
                unchecked.append(Problem(loaded.document.file, position, key, what, fix))
            missing = [path for path in asked if not any(_has(event, path) for event in samples)] if samples else []
            for path in missing:
                what = f"none of {len(samples)} sample events has the field {_spelled(path)}"
                what += _outcome(template, samples)
                warnings.append(Problem(loaded.document.file, position, key, what, _suggestion(path, samples)))
            # What sources add to events is not in samples.
            if not missing and len(asked) == len(template.needed) and (failure := _failure(template, samples)):
                what = f"all of {len(samples)} sample events would fail here: {failure}"
                warnings.append(Problem(loaded.document.file, position, key, what, "Try it with: penstock test"))
    return Findings(warnings, unchecked)


def _failure(template: EventTemplate, samples: Sequence[Event]) -> str:
    """What goes wrong with the first sample, if every sample fails."""
    said: list[str] = []
    for event in samples:
        try:
            template.render(event)
            return ""
        except Exception as error:  # whatever a template can raise
            said.append(str(error) or type(error).__name__)
    return said[0] if said else ""


def _outcome(template: EventTemplate, samples: Sequence[Event]) -> str:
    """What happens to the events, if the template is empty for all of them."""

    def is_empty(event: Event) -> bool:
        with suppress(Exception):  # whatever a template can raise is no name either
            return not template.render(event).strip()
        return False

    return ", and all of them would be skipped" if all(map(is_empty, samples)) else ""


def _suggestion(path: Sequence[str], samples: Sequence[Event]) -> str:
    outer = path[:-1]
    names = {key for event in samples if isinstance(inner := _at(event, outer), Mapping) for key in inner}
    close = difflib.get_close_matches(path[-1], names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {_spelled([*outer, close[0]])}?"
    return f"There are: {', '.join(sorted(names)[:12])}." if names else ""


def _spelled(path: Sequence[str]) -> str:
    return f"'{'.'.join(path)}'"


def _at(event: object, path: Sequence[str]) -> object:
    for key in path:
        if not isinstance(event, Mapping) or key not in event:
            return None
        event = event[key]
    return event


def _has(event: Event, path: Sequence[str]) -> bool:
    inner = _at(event, path[:-1])
    return isinstance(inner, Mapping) and path[-1] in inner


def _place(loaded: Loaded, route: str, option: str) -> Position | None:
    node: Node | None = loaded.document.root
    for key in ("routes", route, "to", option):
        node = node.entries.get(key) if node is not None else None
    return node.position if node is not None else None


def _samples(loaded: Loaded, name: str) -> Iterator[Event]:
    route, folder = loaded.config.routes[name], Path(loaded.document.file).absolute().parent
    files = [file for source in route.from_ for file in loaded.config.sources[source].sample_files()]
    found = [event for file in files for event in _of_file(file)]
    found += islice(_of_cases(folder / "tests", name), _EVENTS)
    yield from found or _of_log(loaded.config, route)


def _of_file(file: SampleFile) -> Iterator[Event]:
    try:
        with gzip.open(file.path, "rb") if file.path.suffix == ".gz" else file.path.open("rb") as stream:
            text = stream.read(_BYTES).decode("utf-8-sig", "replace")
    except (OSError, EOFError):
        return
    if file.delimiter is not None:
        lines = text.splitlines()
        header = file.columns or tuple(next(csv.reader(lines[:1], delimiter=file.delimiter), ()))
        if header:
            yield dict.fromkeys(header, "")
    elif text.lstrip().startswith("["):
        yield from _objects([text])
    else:
        yield from islice(_objects(text.splitlines()), _EVENTS)


def _of_cases(folder: Path, route: str) -> Iterator[Event]:
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            read = yaml.load(path.read_text()[:_BYTES], yaml.CSafeLoader)
        except (OSError, ValueError, yaml.YAMLError, RecursionError):
            continue  # `penstock test` says what is wrong with it
        cases = read.get("cases") if isinstance(read, dict) else None
        for case in cases if isinstance(cases, list) else ():
            if isinstance(case, dict) and case.get("route") == route:
                records = case.get("input_records") or ()
                yield from _events(case.get("input") or ())
                yield from _events(record.get("data") for record in records if isinstance(record, dict))


def _of_log(config: PipelineConfig, route: RouteConfig) -> Iterator[Event]:
    directory = Layout(config.data_dir).log
    if not directory.exists():
        return
    from penstock.errors import PenstockError
    from penstock.log.local_log import LocalLog

    log = LocalLog(directory, config.log)
    with suppress(PenstockError, OSError):
        for partition in log.partitions(route.from_):
            bounds = log.bounds(partition)
            for batch in log.read(partition, max(bounds.oldest, bounds.end - _EVENTS), bounds.end):
                yield from _objects(data for data in batch.column("data").to_pylist() if data)


def _events(values: Iterable[object]) -> Iterator[Event]:
    for value in values:
        if isinstance(value, dict):
            yield value
        elif isinstance(value, str):
            yield from _objects([value])


def _objects(texts: Iterable[str | bytes]) -> Iterator[Event]:
    """Those that are JSON; others fail elsewhere."""
    for text in texts:
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict))
