"""The processes of a pipeline: what starts, watches and ends them."""
