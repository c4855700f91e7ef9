"""Destination ``archive``: every event as a line, in gzip files per day and token."""

from penstock.destinations.archive.archive_reader import read_archive
from penstock.registry import built_in

__all__ = ["component", "read_archive"]

component = built_in(__name__, "Keeps events as they are in the log, in gzip files per day and token.")
