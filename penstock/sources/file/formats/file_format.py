"""Which format a file has, and what reads it: by its name, or as it was said."""

from __future__ import annotations

from pathlib import Path

from penstock.sources.file.compressed import PackedContent, gzip_chunks, zstd_chunks
from penstock.sources.file.config import FileConfig
from penstock.sources.file.content import Content, PlainContent
from penstock.sources.file.formats.csv_rows import CsvCutter
from penstock.sources.file.formats.json_array import ArrayCutter
from penstock.sources.file.formats.record_cutter import Cutter, LineCutter
from penstock.sources.json_text import BOM, WHITESPACE

_UNPACKING = {".gz": gzip_chunks, ".zst": zstd_chunks, ".zstd": zstd_chunks}
_BY_OPTION = {"gzip": gzip_chunks, "zstd": zstd_chunks}

_FORMATS = {".csv": "csv", ".tsv": "csv"}


def is_packed(path: Path, config: FileConfig) -> bool:
    return config.compression in _BY_OPTION or (config.compression == "auto" and path.suffix in _UNPACKING)


def open_content(path: Path, config: FileConfig) -> Content:
    """What is in a file, unpacked if it is compressed."""
    if config.compression == "auto" and path.suffix in _UNPACKING:
        return PackedContent(path, _UNPACKING[path.suffix])
    if config.compression in _BY_OPTION:
        return PackedContent(path, _BY_OPTION[config.compression])
    return PlainContent(path)


def format_of(path: Path, config: FileConfig, content: Content) -> str:
    """The format of a file: as it was said, or by its name. A `.json` is an array if it begins like one."""
    if config.format != "auto":
        return config.format
    if _ending(path) == ".json":
        return "json" if content.read(0, 256).removeprefix(BOM).lstrip(WHITESPACE).startswith(b"[") else "ndjson"
    return _FORMATS.get(_ending(path), "ndjson")


def is_parquet(path: Path, config: FileConfig) -> bool:
    return config.format == "parquet" or (config.format == "auto" and path.suffix == ".parquet")


def cutter(path: Path, config: FileConfig, content: Content) -> Cutter:
    """What cuts the content of a file into records."""
    format = format_of(path, config, content)
    if format == "json":
        return ArrayCutter(config.line_bytes)
    if format == "csv":
        delimiter = config.delimiter or ("\t" if _ending(path) == ".tsv" else ",")
        return CsvCutter(content, delimiter, config.quote, config.columns, config.line_bytes)
    return LineCutter(config.line_bytes)


def _ending(path: Path) -> str:
    """What the name ends in, without the sign of compression."""
    return Path(path.stem).suffix if path.suffix in _UNPACKING else path.suffix
