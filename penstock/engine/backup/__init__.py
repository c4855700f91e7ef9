"""A consistent copy of a pipeline's ``data_dir``, made while it runs, and putting it back.

A backup is a folder: the log, the ledger, the failed store, what sources remember, and a manifest with the size and the
checksum of every file, written last. Checkpoints are not in it: they repeat what the ledger says, and Spark makes new
ones from that.
"""
