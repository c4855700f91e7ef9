"""The formats of files, each cut into records."""
