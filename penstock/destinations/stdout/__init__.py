"""Destination ``stdout``: prints records, one JSON line each."""

from penstock.registry import built_in

component = built_in(__name__, "Prints records to standard output, one JSON line each.")
