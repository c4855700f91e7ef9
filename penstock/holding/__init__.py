"""What holding steps are made of: what waits by key, in memory and as state. No Spark, no log."""
