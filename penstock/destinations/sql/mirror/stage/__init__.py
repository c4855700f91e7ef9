"""Inside a task: from records to files of changes per mirrored table."""
