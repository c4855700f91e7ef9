"""Writes the bundles of a batch: which thread writes what, which are written together, and how that ends."""
