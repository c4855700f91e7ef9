"""Destination ``dataset``: events to the DataSet ``addEvents`` API, in order by session."""

from penstock.registry import built_in

component = built_in(__name__, "Sends events to the DataSet addEvents API, in order inside each session.")
