"""Conditions in the OpenTelemetry Transformation Language: from their text to vectorised tests of spans and events."""
