"""Writes docs/reference from the config classes and the components' READMEs, so that it cannot say anything else.

python scripts/reference.py            write the pages
python scripts/reference.py --check    write nothing; end 1 and name the pages that are not as they should be
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from error_page import error_page

from penstock.config.pipeline_config import PipelineConfig
from penstock.registry import Component, Kind, components

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MARK = "<!-- Written by `make docs`. Change the config class or the component's README instead. -->\n"

Schema = Mapping[str, Any]


def pages() -> dict[str, str]:
    """Every page by its file name."""
    found = {"config.md": _config_page(), "errors.md": error_page(), "README.md": _index()}
    for kind in Kind:
        for component in components(kind).values():
            found[_file(component)] = _component_page(component)
    return {name: MARK + text for name, text in found.items()}


def _index() -> str:
    lines = ["# Reference\n", "- [The pipeline file](config.md)", "- [Error codes](errors.md)\n"]
    for kind in Kind:
        lines.append(f"## {kind.folder.capitalize()}\n")
        lines += [f"- [`{c.name}`]({_file(c)}): {c.summary}" for c in components(kind).values()]
        lines.append("")
    return "\n".join(lines)


def _file(component: Component) -> str:
    return f"{component.kind}-{component.name}.md"


def _component_page(component: Component) -> str:
    config = component.config_class()
    body = component.readme.read_text().partition("\n")[2].strip()
    body = re.sub(r"\(\.\./(\w+)/README\.md", rf"({component.kind}-\1.md", body)
    options = _options(config.model_json_schema(by_alias=True), "Options")
    bare = f"\nA bare value stands for `{config.main_option}`.\n" if config.main_option else ""
    return f"# {str(component.kind).capitalize()} `{component.name}`\n\n{body}\n\n{options}{bare}"


def _config_page() -> str:
    schema = PipelineConfig.model_json_schema(by_alias=True)
    about = (
        "One YAML file describes a pipeline. Values may hold `${NAME}` and `${NAME:-default}`, filled in from the\n"
        "environment; `$${` stands for a plain `${`. Paths are relative to the file. Durations are written `250ms`,\n"
        "`30s`, `5m`, `1h`, `7d`; sizes `512`, `10MB`, `1GiB`.\n\n"
        "`penstock validate` checks a file; `penstock schema config` prints its JSON Schema for editors.\n"
    )
    return f"# The pipeline file\n\n{about}\n{_options(schema, 'Keys')}"


def _options(schema: Schema, title: str) -> str:
    sections = [f"## {title}\n\n{_table(schema, schema)}"]
    for path, part in _nested(schema, schema, ""):
        about = " ".join(part.get("description", "").replace("``", "`").split())
        sections.append(f"### `{path}`\n\n{about}\n\n{_table(part, schema)}")
    return "\n".join(sections)


def _table(part: Schema, root: Schema) -> str:
    required = part.get("required", [])
    lines = ["| key | value | default | |", "|---|---|---|---|"]
    for key, option in part.get("properties", {}).items():
        default = "required" if key in required else _default(option, root)
        text = option.get("description") or _resolved(option, root).get("description", "")
        lines.append("| " + " | ".join(_cell(c) for c in (f"`{key}`", _kind(option, root), default, text)) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _nested(part: Schema, root: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for key, option in part.get("properties", {}).items():
        for suffix, inner in _mappings(option, root):
            yield path + key + suffix, inner
            yield from _nested(inner, root, f"{path}{key}{suffix}.")


def _mappings(option: Schema, root: Schema) -> Iterator[tuple[str, Schema]]:
    """The mappings with known keys that an option takes, or holds under names or in a list."""
    option = _resolved(option, root)
    if option.get("properties"):
        yield "", option
    for choice in option.get("anyOf", []):
        yield from _mappings(choice, root)
    for suffix, inner in (("[]", option.get("items")), (".<name>", _named(option))):
        if inner is not None:
            yield from ((suffix + deeper, found) for deeper, found in _mappings(inner, root))


def _named(option: Schema) -> Schema | None:
    """What stands under names that the user chooses, if the option has such."""
    inner = next(iter(option.get("patternProperties", {}).values()), option.get("additionalProperties"))
    return inner if isinstance(inner, dict) else None


def _resolved(option: Schema, root: Schema) -> Schema:
    while "$ref" in option:
        option = root["$defs"][option["$ref"].rpartition("/")[2]]
    return option


_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "nothing",
}


def _kind(option: Schema, root: Schema) -> str:
    """What may be written as the value, in a few words."""
    option = _resolved(option, root)
    if "anyOf" in option:
        kinds = [_kind(choice, root) for choice in option["anyOf"] if choice.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "oneOf" in option:
        return "a component"
    choices = option.get("enum", [option["const"]] if "const" in option else [])
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    kind = option.get("type", "any value")
    if isinstance(kind, list):
        return "duration" if "number" in kind else "size"
    if kind == "array":
        return f"list of {_kind(option.get('items', {}), root)}"
    if kind == "object":
        inner = _named(option)
        return "mapping" if inner is None else f"names, each with {_kind(inner, root)}"
    return _WORDS.get(kind, kind)


_UNITS = {
    "duration": [(86400, "d"), (3600, "h"), (60, "m"), (1, "s"), (0.001, "ms")],
    "size": [(2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (10**6, "MB"), (1, "B")],
}


def _default(option: Schema, root: Schema) -> str:
    default = option.get("default")
    if default is None or default == [] or isinstance(default, dict):
        return ""
    units = _UNITS.get(_kind(option, root), [])
    if isinstance(default, (int, float)) and default:
        for factor, unit in units:
            if default >= factor and round(default / factor, 9).is_integer():
                return f"`{round(default / factor)}{unit}`"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def main() -> int:
    wanted = pages()
    found = {path.name: path.read_text() for path in FOLDER.glob("*.md")} if FOLDER.exists() else {}
    stale = [name for name, text in found.items() if text.startswith(MARK) and name not in wanted]
    wrong = sorted(stale + [name for name, text in wanted.items() if found.get(name) != text])
    if "--check" in sys.argv:
        if wrong:
            print(f"docs/reference is not current: {', '.join(wrong)}. Run: make docs", file=sys.stderr)
        return 1 if wrong else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (FOLDER / name).unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)
    print(f"{len(wanted)} pages in docs/reference, {len(wrong)} of them changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
