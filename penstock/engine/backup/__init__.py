"""Backup and restore: a consistent copy of a pipeline's ``data_dir``, made while it runs.

A backup is a folder: the log, the ledger, the failed store, the progress of sources, the state of steps, and a manifest
with the size and the checksum of every file, written last. Of checkpoints it has those of routes whose steps keep
state, cut back to where the ledger stands. The others repeat what the ledger says, and Spark makes new ones from that.
"""
