"""Values of a config as people write them: durations, addresses, paths."""
