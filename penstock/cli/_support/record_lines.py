"""A record as a line for people and as an object for machines."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from penstock.cli._support.screen import JsonValue, console, moment, print_json_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.record import Record


def print_records(records: Iterable[Record], as_json: bool, full: bool) -> int:
    """Print each as it comes; returns how many there were. On a terminal a line is cut to its width unless ``full``."""
    printed = 0
    screen = None if as_json else console()
    for record in records:
        if screen is None:
            print_json_line(record_object(record))
        else:
            cut = screen.is_terminal and not full
            screen.print(record_line(record), soft_wrap=not cut, no_wrap=True, overflow="ellipsis" if cut else "ignore")
            screen.file.flush()
        printed += 1
    return printed


def record_line(record: Record) -> str:
    place = f"{record.partition}:{record.offset}"
    about = f"{moment(record.timestamp)}  {record.mode:<8}  {record.op:<7}  {printable(record.namespace)}"
    return f"{place:<10}  {about}  {printable(data_text(record.data))}"


def record_object(record: Record) -> dict[str, JsonValue]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp.isoformat(),
        "namespace": record.namespace,
        "op": str(record.op),
        "mode": str(record.mode),
        "key": record.key,
        "headers": dict(record.headers),
        **data_members(record.data),
    }


def data_members(data: bytes | None) -> dict[str, JsonValue]:
    """``data`` if it is text, ``data_base64`` if it is not."""
    try:
        return {"data": None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data or b"").decode()}


def data_text(data: bytes | None) -> str:
    if data is None:
        return "-"
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"
