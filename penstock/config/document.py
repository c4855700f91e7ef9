"""A YAML file as a tree that knows the position of everything.

It reads the core types of YAML 1.2 (so ``no``, ``12:30`` and ``2024-01-01`` are text), aliases and merge keys. No file
can exhaust memory or stack: its size, its depth and what its aliases expand to are bounded. Mistakes are collected, not
raised, as long as the rest of the tree still makes sense.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from penstock.config.interpolation import InterpolationError, interpolate
from penstock.config.problems import Position, Problem
from penstock.config.shown_keys import path_part
from penstock.config.syntax import syntax_problem

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_VALUES = 100_000


@dataclass
class Node:
    """One value: ``value`` is its plain data, of which ``entries`` (of a mapping) or ``items`` (of a list) are part."""

    position: Position
    value: object
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Position] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    written: str | None = None
    """The text in the file if variables were filled in; shown to people in place of the value."""
    reported: bool = False
    """A problem of this value is known already."""


@dataclass(frozen=True)
class Document:
    """``root`` is None if nothing can be checked further."""

    file: str
    root: Node | None
    problems: list[Problem]


def real(text: str) -> float:
    """A number with a fraction or an exponent, as YAML writes it."""
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_FIRST_LINES = "Begin with `name:`, `sources:` and `routes:`, or let `penstock init` write a first pipeline."


def parse(
    text: str,
    file: str,
    variables: Mapping[str, str],
    reals: Callable[[str], float] = real,
    first_lines: str = _FIRST_LINES,
) -> Document:
    """The tree of a text, with its YAML errors. ``reals`` converts the numbers that are not integers; ``first_lines``
    says what to write in a file that is empty."""
    try:
        _check_depth(text)
        loader = _Loader(text)
        top = loader.get_single_node()
        if top is None:
            return Document(file, None, [Problem(file, Position(1, 1), "", "the file is empty", first_lines)])
        builder = _Builder(file, variables, reals, loader)
        return Document(file, builder.build(top), builder.problems)
    except yaml.YAMLError as error:
        return Document(file, None, [syntax_problem(error, text, file)])
    except _TooMuch as error:
        return Document(file, None, [Problem(file, error.position, "", error.what, error.fix)])


_STR, _NULL, _BOOL, _INT, _FLOAT, _MERGE, _MAP, _SEQ = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "null", "bool", "int", "float", "merge", "map", "seq")
)


class _Loader(yaml.CSafeLoader):
    """Knows only the YAML types that are added here."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    (_NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (_BOOL, r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (_INT, r"[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}", list("-+0123456789")),
    (
        _FLOAT,
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    (_MERGE, r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)


@dataclass(frozen=True)
class _TooMuch(Exception):
    position: Position
    what: str
    fix: str


def _check_depth(text: str) -> None:
    # The composer recurses in C, where a text that is too deep would crash the process: check the flat events first.
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(_position(event))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _too_deep(position: Position) -> _TooMuch:
    return _TooMuch(position, f"more than {MAX_DEPTH} levels inside each other", "Check brackets and aliases.")


def _position(marked: yaml.Node | yaml.Event) -> Position:
    mark = marked.start_mark
    assert mark is not None  # the C parser always gives one
    return Position(mark.line + 1, mark.column + 1)


_LONGEST_NUMBER = 5
"""Of a key that is a number or the like: longer ones may be a secret that lacks its key."""


class _Builder:
    def __init__(self, file: str, variables: Mapping[str, str], reals: Callable[[str], float], loader: _Loader) -> None:
        self.file = file
        self.variables = variables
        self.reals = reals
        self.loader = loader
        self.problems: list[Problem] = []
        self.count = 0

    def build(self, node: yaml.Node, key: str = "", depth: int = 0) -> Node:
        self.count += 1
        if self.count > MAX_VALUES:
            raise _TooMuch(
                _position(node), f"more than {MAX_VALUES:,} values, with aliases written out", "Use fewer aliases."
            )
        if depth > MAX_DEPTH:
            raise _too_deep(_position(node))
        if isinstance(node, yaml.MappingNode) and node.tag == _MAP:
            return self._mapping(node, key, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQ:
            items = [self.build(item, f"{key}[{i}]", depth + 1) for i, item in enumerate(node.value)]
            return Node(_position(node), [item.value for item in items], items=items)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, key)
        return self._unsupported(node, key)

    def _mapping(self, node: yaml.MappingNode, key: str, depth: int) -> Node:
        built = Node(_position(node), None)
        inherited: dict[str, tuple[Node, Position]] = {}
        for key_node, value_node in node.value:
            position = _position(key_node)
            if key_node.tag == _MERGE:
                for name, child, place in self._merged(value_node, key, depth):
                    inherited.setdefault(name, (child, place))
                continue
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _STR:
                self.problems.append(self._bad_key(key_node, key))
                built.reported = True
                continue
            name = key_node.value
            inner = f"{key}.{path_part(name)}" if key else path_part(name)
            if name in built.entries:
                first = built.keys[name].line
                what = f"key '{path_part(name)}' is given twice, first in line {first}"
                self.problems.append(Problem(self.file, position, inner, what, "Keep one of the two."))
                continue
            child = self.build(value_node, inner, depth + 1)
            if child.value is None and isinstance(value_node, yaml.ScalarNode) and not value_node.value:
                child.position = position
            built.entries[name], built.keys[name] = child, position
        for name, (child, place) in inherited.items():
            if name not in built.entries:
                built.entries[name], built.keys[name] = child, place
        built.value = {name: child.value for name, child in built.entries.items()}
        return built

    def _merged(self, node: yaml.Node, key: str, depth: int) -> Iterator[tuple[str, Node, Position]]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for part in parts:
            base = self.build(part, key, depth + 1)
            if not isinstance(part, yaml.MappingNode):
                what = "`<<` takes a mapping or a list of mappings"
                self.problems.append(Problem(self.file, base.position, key, what, "Write `<<: *name`."))
            for name, child in base.entries.items():
                yield name, child, base.keys[name]

    def _scalar(self, node: yaml.ScalarNode, key: str) -> Node:
        tag, text, position = node.tag, node.value, _position(node)
        written = None
        if "${" in text:
            try:
                filled = interpolate(text, self.variables)
            except InterpolationError as error:
                self.problems.append(Problem(self.file, position, key, error.what, error.fix))
                return Node(position, text, reported=True)
            written, text = text, filled
            if not node.style:
                tag = self.loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        try:
            return Node(position, _plain_value(tag, text, self.reals), written=written)
        except (KeyError, ValueError):
            return self._unsupported(node, key)

    def _unsupported(self, node: yaml.Node, key: str) -> Node:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        problem = Problem(self.file, _position(node), key, f"the tag {tag} has no meaning here", "Remove it.")
        self.problems.append(problem)
        return Node(_position(node), None, reported=True)

    def _bad_key(self, node: yaml.Node, parent: str) -> Problem:
        if isinstance(node, yaml.MappingNode):
            what, fix = "a mapping stands where a key should", 'Text with {{ }} needs quotes: "{{ name }}".'
        elif isinstance(node, yaml.ScalarNode) and len(node.value) > _LONGEST_NUMBER:
            what, fix = (
                "a number stands where a key should; it is not shown, because it may be a secret",
                "Name its key.",
            )
        elif isinstance(node, yaml.ScalarNode):
            what, fix = f"the key {node.value or '(nothing)'} is not text", f"Put it in quotes: '{node.value}'."
        else:
            what, fix = "a list stands where a key should", "Text that begins with [ needs quotes."
        return Problem(self.file, _position(node), parent, what, fix)


def _plain_value(tag: str, text: str, reals: Callable[[str], float]) -> object:
    if tag in (_STR, _MERGE):
        return text
    if tag == _NULL:
        return None
    if tag == _BOOL:
        return {"true": True, "false": False}[text.lower()]
    if tag == _INT:
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if tag == _FLOAT:
        return reals(text)
    raise KeyError(tag)
