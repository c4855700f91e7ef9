"""State that many sources report: which report is written, in which order, what waits for what. No I/O."""
