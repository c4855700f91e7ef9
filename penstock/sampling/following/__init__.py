"""What follows the decisions of a sampler: the log records of its traces."""
