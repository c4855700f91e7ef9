"""The source, held to what every source owes."""

from __future__ import annotations

import json
import time
from pathlib import Path

from penstock.testing.source import SourceContract


class TestSpool(SourceContract):
    type_name = "spool"
    exactly_once = False

    def config(self, folder: Path) -> str:
        return json.dumps({"type": "spool", "path": str(folder / "inbox"), "poll": "20ms"})

    def feed(self, folder: Path, lines: list[bytes]) -> bool:
        inbox = folder / "inbox"
        inbox.mkdir(exist_ok=True)
        written = inbox / "incomplete"
        written.write_bytes(b"".join(line + b"\n" for line in lines))
        written.rename(inbox / f"{time.time_ns()}.ndjson")
        return True
