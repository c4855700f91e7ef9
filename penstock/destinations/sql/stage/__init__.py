"""Inside a task: from records to typed files per table."""
