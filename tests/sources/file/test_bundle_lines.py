"""Lines of a file can be bundles of state: what the source appends, conflation reads."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pyarrow as pa

from penstock.conflation.kinds import Dependency, Kind, Kinds
from penstock.conflation.read_bundles import read_bundles
from penstock.log.local_log import LocalLog
from penstock.sources.contract import SourceContext
from penstock.sources.file.config import FileConfig
from penstock.sources.file.source import FileSource

KINDS = Kinds([Kind("clusters", 0), Kind("compliance", 1, depends_on=Dependency("clusters"))])
LINES = b"""\
{"source":"hub1","kind":"clusters","version":"0.1","data":{"items":[ {"id":2.50} ]}}
{"source":"hub1","kind":"compliance","version":"0.1","depends_on":"0.1","data":[1e400]}

{"source":"hub1","kind":"clusters","version":"1","data":{}}
{"data":{"source":"hub2"},"version":"0.2","kind":"clusters","source":"hub2"}
{"source":"hub1","kind":"policies","version":"0.1","data":{}}
"""


def test_a_line_is_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "state.ndjson").write_bytes(LINES)
    context = SourceContext("state", tmp_path / "log", "{}", tmp_path / "state")
    FileSource(FileConfig.model_validate({"path": tmp_path / "state.ndjson"}), context).run(Event(), once=True)
    log = LocalLog(tmp_path / "log")
    batch = pa.concat_batches([batch for partition in log.partitions() for batch in log.read(partition, 0)])
    bundles, failures = read_bundles(batch, KINDS)
    assert bundles.select(["source", "kind", "version", "depends_on", "offset", "data"]).to_pylist() == [
        _bundle("hub1", "clusters", "0.1", None, 0, b'{"items":[ {"id":2.50} ]}'),
        _bundle("hub1", "compliance", "0.1", "0.1", 1, b"[1e400]"),
        _bundle("hub2", "clusters", "0.2", None, 3, b'{"source":"hub2"}'),
    ]
    assert {row["offset"]: row["code"] for row in failures.to_pylist()} == {2: "bad_version", 4: "unknown_kind"}


def _bundle(source: str, kind: str, version: str, needs: str | None, offset: int, data: bytes) -> dict[str, object]:
    return {
        "source": source,
        "kind": kind,
        "version": version,
        "depends_on": needs,
        "offset": offset,
        "data": data,
    }
