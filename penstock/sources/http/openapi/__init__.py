"""The collector described in OpenAPI."""
