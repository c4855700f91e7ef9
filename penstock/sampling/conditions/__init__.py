"""What a single span is asked in tail sampling: one answer per span, a table of spans at a time."""
