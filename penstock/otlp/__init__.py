"""OTLP, byte by byte: requests are scanned, cut and put together, mostly without building messages."""
