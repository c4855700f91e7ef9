"""Penstock: one pipeline for events, telemetry, table changes and state reports, on Apache Spark."""

__version__ = "0.1.0"
