"""The least that a streaming Python data source can do: hand Spark Arrow batches that are there already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.record import RECORD_SCHEMA


class BareSource(DataSource):
    """Reads the Arrow files of a folder, so many per batch as make up ``maxRecordsPerTrigger``; one task per file."""

    @classmethod
    def name(cls) -> str:
        return "bench_bare"

    def schema(self) -> StructType:
        return from_arrow_schema(RECORD_SCHEMA)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return BareReader(Path(self.options["path"]), int(self.options["maxrecordspertrigger"]))


class ArrowFile(InputPartition):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class BareReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, folder: Path, records: int) -> None:
        self._files = sorted(str(path) for path in folder.iterdir())
        self._records = records
        self._step = max(1, records // _rows(self._files[0]))

    def initialOffset(self) -> dict[str, int]:
        return {"files": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._records)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        step = len(self._files) if isinstance(limit, ReadAllAvailable) else self._step
        return {"files": min(len(self._files), start["files"] + step)}

    def prepareForTriggerAvailableNow(self) -> None:
        """The files are all there from the start."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [ArrowFile(path) for path in self._files[start["files"] : end["files"]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ArrowFile)
        with pa.memory_map(partition.path) as source, pa.ipc.open_file(source) as file:
            for place in range(file.num_record_batches):
                yield file.get_batch(place)


def _rows(path: str) -> int:
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
        return sum(file.get_batch(place).num_rows for place in range(file.num_record_batches))
