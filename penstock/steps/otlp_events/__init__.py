"""``otlp_events``: make one addEvents event of each log record and span of OTLP requests."""

from penstock.registry import built_in

component = built_in(__name__, "makes one addEvents event of each log record and span of OTLP requests")
