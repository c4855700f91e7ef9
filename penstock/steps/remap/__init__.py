"""``remap``: give namespaces other names."""

from penstock.registry import built_in

component = built_in(__name__, "gives namespaces other names")
