"""The processes of a pipeline: who starts them, watches them and ends them."""
