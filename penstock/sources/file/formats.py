"""Which format a file has, and what reads it: by its name, or as it was said."""

from __future__ import annotations

from pathlib import Path

from penstock.sources.file.config import FileConfig
from penstock.sources.file.content import Content, PlainContent
from penstock.sources.file.cutting import Cutter, LineCutter
from penstock.sources.file.packed import PackedContent, gzip_chunks, zstd_chunks

_UNPACKING = {".gz": gzip_chunks, ".zst": zstd_chunks, ".zstd": zstd_chunks}
_BY_OPTION = {"gzip": gzip_chunks, "zstd": zstd_chunks}


def is_packed(path: Path, config: FileConfig) -> bool:
    return config.compression in _BY_OPTION or (config.compression == "auto" and path.suffix in _UNPACKING)


def open_content(path: Path, config: FileConfig) -> Content:
    """What is in a file, unpacked if it is compressed."""
    if config.compression == "auto" and path.suffix in _UNPACKING:
        return PackedContent(path, _UNPACKING[path.suffix])
    if config.compression in _BY_OPTION:
        return PackedContent(path, _BY_OPTION[config.compression])
    return PlainContent(path)


def cutter(path: Path, config: FileConfig) -> Cutter:
    """What cuts the content of a file into records."""
    return LineCutter(config.line_bytes)
