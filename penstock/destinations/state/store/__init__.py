"""Databases that hold the state of sources: the rows of their bundles, which versions those are, and how far the log is
processed."""
