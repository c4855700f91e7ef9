"""Rows as JSON, and as entries of the log."""
