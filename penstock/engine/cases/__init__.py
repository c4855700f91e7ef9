"""``penstock test``: cases that people write for their routes, run and compared."""
