"""``pick``: keep some fields of every record and nothing else."""

from penstock.registry import built_in

component = built_in(__name__, "keeps some fields of every record and nothing else")
