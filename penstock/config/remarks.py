"""Warnings about a config file: keys that have another name now."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import AliasChoices, BaseModel

from penstock.config.component import ReadingContext
from penstock.config.document import Document, Node
from penstock.config.problems import Problem


def remarks(document: Document, reading: ReadingContext) -> list[Problem]:
    """In the order of the file."""
    if document.root is None:
        return []
    readers = {id(value): cls for value, cls in reading.readers}
    found = []
    for trail, node in _mappings(document.root, ()):
        if (cls := readers.get(id(node.value))) is None:
            continue
        for older, newer in _older_names(cls).items():
            if older in node.keys:
                what = f"'{older}' is an older name of '{newer}'"
                key = ".".join([*trail, older])
                found.append(
                    Problem(document.file, node.keys[older], key, what, f"Write `{newer}:`; it means the same.")
                )
    return found


def _mappings(node: Node, trail: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    if node.entries:
        yield trail, node
    for key, entry in node.entries.items():
        yield from _mappings(entry, (*trail, key))
    for number, item in enumerate(node.items):
        yield from _mappings(item, (*trail[:-1], f"{trail[-1] if trail else ''}[{number}]"))


def _older_names(cls: type[BaseModel]) -> dict[str, str]:
    return {
        str(older): str(field.validation_alias.choices[0])
        for field in cls.model_fields.values()
        if isinstance(field.validation_alias, AliasChoices)
        for older in field.validation_alias.choices[1:]
    }
