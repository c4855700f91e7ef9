"""Copying the rows that tables have when the source begins."""
