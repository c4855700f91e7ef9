"""Destination ``ga4``: events to Google Analytics 4, by its measurement protocol."""

from penstock.registry import built_in

component = built_in(__name__, "Sends events to Google Analytics 4 by its measurement protocol, at least once.")
