"""Options of the file reader."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from penstock.config.component import SampleFile, SourceConfig
from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.quantities import ByteSize, Duration
from penstock.sources.file.discovery import find_files

_SAMPLES = 20
"""How many files a check looks into."""


class FileConfig(SourceConfig):
    """Which files, and how they are read."""

    bounded: ClassVar[bool] = True

    type: Literal["file"] = "file"
    path: LocalPath = Field(
        description="A file, a pattern such as `./in/*.ndjson` (`**` goes through folders), or a folder: then all files"
        " in it and in the folders below."
    )
    pattern: str = Field(
        default="*", min_length=1, description="In a folder: which names are read. Hidden files never are."
    )
    format: Literal["auto", "ndjson", "json", "csv", "parquet"] = Field(
        default="auto",
        description="`ndjson`: one JSON object per line. `json`: one array of objects. `csv`: one row per line, all"
        " values as text. `parquet`: one object per row. `auto`: by the name, without `.gz` and the like: `.csv`,"
        " `.tsv`, `.parquet`, `.json` if it begins with `[`; anything else is NDJSON.",
    )
    delimiter: str | None = Field(
        default=None, pattern=r"^[\x01-\x7e]$", description="CSV: what is between fields; `,`, or a tab for `.tsv`."
    )
    quote: str = Field(default='"', pattern=r"^[\x01-\x7e]$", description="CSV: what is around fields.")
    columns: list[str] | None = Field(
        default=None, min_length=1, description="CSV: column names, for files without a header line."
    )
    compression: Literal["auto", "none", "gzip", "zstd"] = Field(
        default="auto", description="`auto`: by the name (`.gz`, `.zst`, `.zstd`); or how all files are compressed."
    )
    namespace: str | None = Field(default=None, description="Namespace of the records; the source's name if absent.")
    batch_bytes: ByteSize = Field(
        default=4 * 2**20, gt=0, le=16 * 2**20, description="About how much goes into the log at a time."
    )
    line_bytes: ByteSize = Field(
        default=16 * 2**20,
        gt=0,
        le=32 * 2**20,
        description="Longest line. A longer one is kept in pieces, as malformed records.",
    )
    poll: Duration = Field(default=1.0, gt=0, description="How often files are looked at for new lines.")

    def sample_files(self) -> list[SampleFile]:
        return [
            sample for found in find_files(self.path, self.pattern)[:_SAMPLES] if (sample := self._sample(found.path))
        ]

    def _sample(self, path: Path) -> SampleFile | None:
        ending = path.name.removesuffix(".gz").rpartition(".")[2]
        if self.format == "parquet" or ending in ("parquet", "zst", "zstd") or self.compression == "zstd":
            return None
        if self.format == "csv" or (self.format == "auto" and ending in ("csv", "tsv")):
            delimiter = self.delimiter or ("\t" if ending == "tsv" else ",")
            return SampleFile(path, delimiter, tuple(self.columns or ()))
        return SampleFile(path)
