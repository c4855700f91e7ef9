"""What is done to closed segments: retention, compaction, verification, repair."""
