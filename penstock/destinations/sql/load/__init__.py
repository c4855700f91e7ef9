"""Staged rows into a table: made to fit, folded by their key, loaded once."""
