"""What a bundle must have to be one, told of one bundle; ``check_bundles`` says the same of whole columns.

A bundle breaks the first rule that it breaks in the order in which they stand here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.conflation.bundle import NAME_RULE, is_name
from penstock.conflation.version import is_version
from penstock.record import Header

TEXTS = (Header.SOURCE, Header.KIND, Header.VERSION, Header.DEPENDS_ON, Header.BASE)
"""What describes a bundle, all of it texts."""
NAMES = (Header.SOURCE, Header.KIND)
VERSIONS = (Header.VERSION, Header.DEPENDS_ON, Header.BASE)

MOST_SHOWN = 60
"""Characters of a text that a message repeats."""
NO_DATA = "it has no data"

_VERSION_RULE = "a version is incarnation.generation, such as 0.7"


def missing(name: Header) -> str:
    return f"it has no {name}" if name in NAMES else f"it has no {name}; {_VERSION_RULE}"


def no_text(name: Header) -> str:
    """With a pair of braces for what it is instead."""
    return f"its {name} is {{}}, which is no text" + ("; put it in quotes" if name in VERSIONS else "")


def wrong_text(name: Header) -> str:
    """With a pair of braces for the text."""
    return f"its {name} is '{{}}'; {NAME_RULE if name in NAMES else _VERSION_RULE}"


def bundle_problem(texts: Mapping[Header, str | None], not_text: Collection[Header], has_data: bool) -> str | None:
    """What is wrong with a bundle, as far as it can be told without knowing the kinds. Of those that are ``not_text``,
    the text is how the value is written."""
    wrong = _text_problem(texts, not_text) or (None if has_data else NO_DATA)
    if wrong is None:
        return None
    named = [f"'{text[:MOST_SHOWN]}'" if (text := texts[name]) is not None else "(none)" for name in NAMES]
    return f"kind {named[1]} of source {named[0]}: {wrong}"


def _text_problem(texts: Mapping[Header, str | None], not_text: Collection[Header]) -> str | None:
    for name, required, is_right in _RULES:
        text = texts[name]
        if text is None:
            if required:
                return missing(name)
        elif name in not_text:
            return no_text(name).replace("{}", text[:MOST_SHOWN])
        elif not is_right(text):
            return wrong_text(name).replace("{}", text[:MOST_SHOWN])
    return None


_RULES = (
    (Header.SOURCE, True, is_name),
    (Header.KIND, True, is_name),
    (Header.VERSION, True, is_version),
    (Header.DEPENDS_ON, False, is_version),
    (Header.BASE, False, is_version),
)
