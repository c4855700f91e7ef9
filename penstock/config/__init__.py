"""YAML to typed config: loading, interpolation, errors that name file, line and fix, JSON Schema."""
