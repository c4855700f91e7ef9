"""Compiles what cuts files into records: each kind of file is given a few bytes to work on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from penstock.sources.file.content import PlainContent
from penstock.sources.file.file_progress import Position
from penstock.sources.file.formats.csv_rows import CsvCutter
from penstock.sources.file.formats.file_entries import entry_batch
from penstock.sources.file.formats.json_array import ArrayCutter
from penstock.sources.file.formats.record_cutter import LineCutter


def warm_up() -> None:
    start = Position("f")
    content = np.frombuffer(b'{"a":1}\n{"a":2}\n', np.uint8)
    piece = LineCutter(1000).cut(content, start, complete=True)
    entry_batch(piece.data, "f", "f", piece.numbers, piece.followings, [], "{}")
    ArrayCutter(1000).cut(np.frombuffer(b'[{"a":1},{"a":2}]', np.uint8), start, complete=True)
    with TemporaryDirectory(prefix="penstock-warm-up-") as folder:
        path = Path(folder) / "rows.csv"
        path.write_bytes(b'a,b\n1,"x"\n')
        with closing(PlainContent(path)) as rows:
            CsvCutter(rows, ",", '"', None, 1000).cut(np.frombuffer(path.read_bytes(), np.uint8), start, complete=True)
