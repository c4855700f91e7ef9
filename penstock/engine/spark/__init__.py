"""Spark: its JVM, its session, its Python processes, and the log as what its queries read."""
