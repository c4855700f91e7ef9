"""Tail sampling: policies, what waits for a decision, and what was decided. Pure: no Spark, no I/O."""
