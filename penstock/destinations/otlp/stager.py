"""Stages OTLP requests inside a task, as protobuf. What is no OTLP request fails here, before anything is sent."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destinations.contract import Part, Stager
from penstock.destinations.otlp.staged_requests import Place, RequestFile
from penstock.otlp.json_requests import Signal
from penstock.otlp.request_bytes import NOT_OTLP, NotOtlp, parse_request
from penstock.otlp.request_pieces import Piece, cut_request
from penstock.outcome import PLACE_COLUMNS, Outcome, failure_batch
from penstock.record import Header

_SIGNALS = {signal.value: signal for signal in Signal}


class RequestStager(Stager):
    """One file per signal, which is also the table of its part. Requests without entries are skipped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[Signal, RequestFile] = {}
        self._last: tuple[int, int, int] | None = None
        self._nth = 0

    def add(self, batch: pa.RecordBatch, read: pa.RecordBatch | None = None) -> Outcome:
        # Row by row: each is parsed as a whole, because one bad span would make the target refuse its neighbours.
        kept = np.zeros(batch.num_rows, bool)
        failures: list[tuple[object, ...]] = []
        found: dict[Signal, tuple[list[Place], list[bytes]]] = {}
        kinds = pc.map_lookup(batch.column("headers"), Header.CONTENT_TYPE.value, "first").to_pylist()
        columns = [batch.column(name).to_pylist() for name in (*PLACE_COLUMNS, "namespace", "data")]
        for row, (*place, namespace, data) in enumerate(zip(*columns, strict=True)):
            item = (place[0], place[1], place[2])
            # Rows of one item, which a step in Spark has made, are adjacent, and are numbered from 0 at every try.
            self._nth = self._nth + 1 if item == self._last else 0
            self._last = item
            try:
                signal, body, pieces = _request(namespace, kinds[row], data)
            except NotOtlp as error:
                failures.append((*item, NOT_OTLP, str(error)))
                continue
            if not pieces:
                continue
            kept[row] = True
            places, bodies = found.setdefault(signal, ([], []))
            places.append(Place(*item, self._nth))
            bodies.append(body)
        for signal, (places, bodies) in found.items():
            self._file(signal).write(places, bodies)
        staged = int(kept.sum())
        failed = failure_batch(failures)
        return Outcome(batch.filter(pa.array(kept)), batch.num_rows - staged - failed.num_rows, failed)

    def finish(self) -> list[Part]:
        return [file.finish(signal.value) for signal, file in self._files.items()]

    def _file(self, signal: Signal) -> RequestFile:
        if signal not in self._files:
            self._files[signal] = RequestFile(self._directory / f"{uuid.uuid4().hex}.{signal}")
        return self._files[signal]


def _request(namespace: str, content_type: str | None, data: bytes | None) -> tuple[Signal, bytes, Sequence[Piece]]:
    """What a row holds. Raises ``NotOtlp``."""
    signal = _SIGNALS.get(namespace)
    if signal is None:
        raise NotOtlp(f"its namespace is '{namespace}'; OTLP has {', '.join(_SIGNALS)}")
    _, body = parse_request(signal, content_type, data)
    try:
        # What cannot be cut must not come to where it is sent: that would stop the route.
        return signal, body, list(cut_request(body))
    except ValueError as error:
        raise NotOtlp(str(error)) from error
