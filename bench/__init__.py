"""Benchmarks. Each one measures Penstock, a peer and the limit in one run; ``python -m bench`` prints a table."""
