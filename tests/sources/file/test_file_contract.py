"""The file reader keeps the contract of all sources."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.testing.source import SourceContract


class TestFileSource(SourceContract):
    type_name = "file"
    exactly_once = True

    def config(self, folder: Path) -> str:
        return json.dumps({"path": str(folder / "in-*.ndjson"), "poll": "20ms", "batch_bytes": 256})

    def feed(self, folder: Path, lines: list[bytes]) -> bool:
        with (folder / "in-1.ndjson").open("ab") as file:
            file.write(b"\n".join(lines) + b"\n")
        return True
