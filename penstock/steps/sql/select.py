"""From the text of a SELECT to what it asks for, or a ``ValueError`` that names the piece that is not supported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.json.paths import Path, format_path
from penstock.steps.expression.parse import Reader, syntax_message
from penstock.steps.expression.tree import Field, Node, RecordField
from penstock.steps.fields import field_path

if TYPE_CHECKING:
    from sqlglot import exp

RECORDS = "records"
"""What a query may name as its table."""

_FORM = "write: select <expressions> [from records] [where <condition>]"


@dataclass(frozen=True)
class Select:
    """``everything`` begins with the record as it stands, less what is in ``but``; otherwise with an empty one."""

    everything: bool
    but: tuple[Path, ...]
    columns: tuple[tuple[Path, Node], ...]
    """Where each value goes, and how it is computed."""
    condition: Node | None


def parse_select(text: str) -> Select:
    """Read one query."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import ParseError, TokenError

    try:
        tree = parse_one(text, read="spark")
    except ParseError as error:
        raise ValueError(syntax_message(text, error)) from error
    except TokenError as error:
        raise ValueError(f"'{text}' cannot be read: a quote or bracket is never closed") from error
    if not isinstance(tree, exp.Select):
        raise ValueError(f"'{text}' is not a select; {_FORM}")
    reader = Reader(text)
    parts = {name.rstrip("_"): part for name, part in tree.args.items() if part}
    for name in parts:
        if name not in ("expressions", "from", "where", "kind", "hint"):
            raise ValueError(f"'{name}' is not supported: each record is looked at by itself; {_FORM}")
    if "from" in parts and parts["from"].this.sql("spark").lower() != RECORDS:
        raise reader.refusal(parts["from"].this, f"is not known: the only table is {RECORDS}")
    stars = [node for node in tree.expressions if isinstance(node, exp.Star)]
    if stars and (len(stars) > 1 or tree.expressions[0] is not stars[0]):
        raise ValueError(f"'{text}': * stands once, and first")
    columns = list(_columns(reader, tree.expressions[len(stars) :]))
    _require_distinct([target for target, _ in columns])
    condition = reader.node(parts["where"].this) if "where" in parts else None
    return Select(bool(stars), _but(reader, stars), tuple(columns), condition)


def _columns(reader: Reader, nodes: Sequence[exp.Expr]) -> Iterator[tuple[Path, Node]]:
    from sqlglot import exp

    for node in nodes:
        if isinstance(node, exp.Alias):
            target = field_path(node.alias)
            if "" in target or not target:
                raise reader.refusal(node, f"has no usable name: '{node.alias}'")
            yield target, reader.node(node.this)
            continue
        value = reader.node(node)
        if isinstance(value, Field):
            yield value.path[-1:], value
        elif isinstance(value, RecordField):
            yield (value.header or value.name,), value
        else:
            raise reader.refusal(node, "needs a name: write ... as total")


def _but(reader: Reader, stars: Sequence[exp.Expr]) -> tuple[Path, ...]:
    paths = []
    for star in stars:
        if star.args.get("replace") or star.args.get("rename"):
            raise reader.refusal(star, "is not supported: after * only except (...) may follow")
        for node in star.args.get("except_") or star.args.get("except") or ():
            field = reader.node(node)
            if not isinstance(field, Field):
                raise reader.refusal(node, "is not a field")
            paths.append(field.path)
    return tuple(paths)


def _require_distinct(targets: Sequence[Path]) -> None:
    for place, target in enumerate(targets):
        if target in targets[:place]:
            raise ValueError(f"two values go to {format_path(target)}: give one another name with as")
