"""Expressions in step configs: checked when the config is read."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from penstock.steps.expression.parse import parse
from penstock.steps.expression.tree import Literal


def _text(value: Any) -> Any:
    """YAML reads a bare ``5`` or ``true`` as a number or a boolean; as an expression they are literals."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("this number is too large for YAML. Put it between quotes")
    return repr(value) if isinstance(value, (int, float)) else value


def _checked(text: str) -> str:
    parse(text)
    return text


ExpressionText = Annotated[str, BeforeValidator(_text), AfterValidator(_checked)]
"""SQL in Spark's dialect that ``parse`` takes."""


def _judges(text: str) -> str:
    tree = parse(text)
    if isinstance(tree, Literal) and not isinstance(tree.value, bool):
        raise ValueError(f"{text} is a value, not a condition. Compare it with a field, as in: price > 10")
    return text


ConditionText = Annotated[str, BeforeValidator(_text), AfterValidator(_judges)]
"""An expression that can be true."""
