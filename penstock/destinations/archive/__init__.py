"""Destination ``archive``: every event as a line, in gzip files per day and token."""

from penstock.destinations.archive.archive_reader import read_archive
from penstock.registry import Component, Kind

__all__ = ["component", "read_archive"]

component = Component(
    Kind.DESTINATION,
    "archive",
    "Keeps events as they are in the log, in gzip files per day and token.",
    config="penstock.destinations.archive.config:ArchiveConfig",
    implementation="penstock.destinations.archive.destination:ArchiveDestination",
)
