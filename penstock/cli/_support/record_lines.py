"""Records as lines for people, or as objects for machines."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from penstock.cli._support.screen import console, moment, print_json_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.record import Record


def print_records(records: Iterable[Record], as_json: bool, full: bool) -> int:
    """Print each as it comes; returns how many there were. On a terminal a line is cut to its width unless ``full``."""
    printed = 0
    screen = None if as_json else console()
    for record in records:
        if screen is None:
            print_json_line(record.facts())
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


def data_text(data: bytes | None) -> str:
    if data is None:
        return "-"
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"
