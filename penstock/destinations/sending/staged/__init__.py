"""Rows between the tasks, which stage them by key, and the driver, which sends them."""
