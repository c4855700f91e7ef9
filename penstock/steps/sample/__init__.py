"""``sample``: keep whole traces, chosen by what their spans turn out to be."""

from penstock.registry import built_in

component = built_in(__name__, "keeps whole traces, chosen by policies as their spans arrive")
