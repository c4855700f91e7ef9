"""Components that Penstock finds by the entry points in ``pyproject.toml``."""
