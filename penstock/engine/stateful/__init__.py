"""Runs the holding step of a route: scan where the log is read, decide by shard, release from the log."""
