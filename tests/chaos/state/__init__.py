"""Kills everything around a database that keeps the newest state of many sources, then looks at every row and write."""
