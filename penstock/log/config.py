"""The options of the local log, as they stand under ``log:`` in a pipeline."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.component import ComponentConfig
from penstock.config.value_types.quantities import ByteSize, Duration

DAY = 86_400.0


class FsyncInterval(ComponentConfig):
    """Sync on a clock. A power loss may take the records of the last interval; a crash of the process takes none."""

    interval: Duration = Field(description="How long written records may wait for the disk, e.g. `1s`.", gt=0)


class Retention(ComponentConfig):
    """When closed segments go. Whatever the limits say, nothing that a route still holds is removed."""

    max_age: Duration | None = Field(
        7 * DAY, description="Remove a segment when its newest record is older than this; null keeps all."
    )
    max_bytes: ByteSize | None = Field(
        None, description="Remove the oldest segments while the whole log is larger than this; null sets no limit."
    )


class LogConfig(ComponentConfig):
    """The embedded log: segment files on a local disk."""

    type: Literal["local"] = Field("local", description="The embedded log on a local disk.")
    segment_bytes: ByteSize = Field(2**30, description="Start a new segment file when the current one would pass this.")
    segment_age: Duration = Field(DAY, description="Start a new segment file when the current one is older than this.")
    fsync: Literal["always", "never"] | FsyncInterval = Field(
        "always",
        description="`always`: an append returns when its records are on disk. `{interval: 1s}`: synced on a clock. "
        "`never`: left to the operating system (a segment is still synced when it is closed).",
    )
    compression: Literal["lz4", "zstd", "none"] = Field("lz4", description="How frames are compressed.")
    compaction: bool = Field(
        False,
        description="Keep only the newest record of each key, in segments that no route needs. The key is the "
        "namespace plus the record's own key; records without their own key (most events) are reduced to one per "
        "namespace. Runs by itself when half of a partition is new. `penstock log compact` runs it now, regardless of "
        "this setting, after asking.",
    )
    retention: Retention = Field(default_factory=Retention, description="When closed segments are removed.")
