"""Batches by session: keys, sizes, trimming, batching, retries, states of errors. Without Spark and without I/O."""
