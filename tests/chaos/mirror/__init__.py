"""Kills everything around a mirrored database while it is written to, then compares source and mirrors row by row."""
