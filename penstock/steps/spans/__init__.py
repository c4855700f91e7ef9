"""``spans``: make one record of each span of OTLP trace requests."""

from penstock.registry import built_in

component = built_in(__name__, "makes one record of each span of OTLP trace requests")
