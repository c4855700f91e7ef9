"""A route that runs: its thread, its query in Spark, the batches of that, and what is tried beside them."""
