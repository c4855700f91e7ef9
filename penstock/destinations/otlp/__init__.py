"""Destination ``otlp``: spans, logs and metrics to whatever takes OTLP over HTTP."""

from penstock.registry import built_in

component = built_in(__name__, "Sends spans, logs and metrics on by OTLP over HTTP, at least once.")
