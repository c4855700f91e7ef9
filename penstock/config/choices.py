"""Where a config names a component, the registry says which class reads its options.

Only the classes that a file uses are imported. A source or destination is chosen by its ``type``; a step is a mapping
of one key, the step's name, to its options or to the bare value of its main option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import (
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from penstock.config.component import ComponentConfig, DestinationConfig, ReadingContext, SourceConfig, StepConfig
from penstock.config.problems import suggestion
from penstock.config.shown_keys import is_shown, quoted
from penstock.registry import Kind, components

LIFTED = ("mode", "every", "only_keys")
"""Route options that may also be written in the destination's mapping."""


def complaint(loc: Sequence[int | str], what: str, fix: str, at_key: bool = False) -> InitErrorDetails:
    """An error at a place below the value that is being read, in our own words."""
    reason = PydanticCustomError("config", "{what}", {"what": what, "fix": fix, "at_key": at_key})
    return InitErrorDetails(type=reason, loc=tuple(loc), input=None)


def refuse(*complaints: InitErrorDetails) -> ValidationError:
    return ValidationError.from_exception_data("config", list(complaints))


@dataclass(frozen=True)
class _Chosen:
    """Validates a mapping with the class that its ``type`` names, and builds the JSON Schema of all of them."""

    kind: Kind
    base: type[ComponentConfig]

    def validate(self, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, self.base):
            return value
        known = components(self.kind)
        if not isinstance(value, dict):
            what = f"expected a mapping with a 'type'{_found(value)}"
            raise refuse(complaint((), what, f"Write, for example: {{type: {min(known)}}}."))
        if "type" not in value:
            fix = f"Add it; one of: {', '.join(sorted(known))}."
            raise refuse(complaint(("type",), f"missing key 'type', which says what {self.kind} this is", fix))
        # YAML reads a bare null as None, and there is a destination of that name.
        name = "null" if value["type"] is None else value["type"]
        if not isinstance(name, str) or name not in known:
            fix = suggestion(str(name), known, f"{self.kind}s")
            raise refuse(complaint(("type",), f"there is no {self.kind} of type '{name}'", fix))
        config = known[name].config_class()
        if isinstance(info.context, ReadingContext):
            info.context.readers.append((value, config))
        lifted = LIFTED if self.kind is Kind.DESTINATION else ()
        options = {key: option for key, option in value.items() if key not in lifted}
        return config.model_validate({**options, "type": name}, context=info.context)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        choices = []
        for name, component in components(self.kind).items():
            drawn = handler.resolve_ref_schema(handler(component.config_class().__pydantic_core_schema__))
            required = sorted({"type", *drawn.get("required", [])})
            selector = {"enum": ["null", None]} if name == "null" else {"const": name}
            properties = {**drawn["properties"], "type": {**selector, "description": component.summary}}
            choices.append({**drawn, "properties": properties, "required": required})
        return {"oneOf": choices}


_SOURCE = _Chosen(Kind.SOURCE, SourceConfig)
_DESTINATION = _Chosen(Kind.DESTINATION, DestinationConfig)

ChosenSource = Annotated[SerializeAsAny[SourceConfig], PlainValidator(_SOURCE.validate), _SOURCE]
ChosenDestination = Annotated[SerializeAsAny[DestinationConfig], PlainValidator(_DESTINATION.validate), _DESTINATION]


@dataclass(frozen=True)
class StepEntry:
    """One step of a route: its name in the registry and its options."""

    name: str
    config: StepConfig


def _step(value: Any, info: ValidationInfo) -> StepEntry:
    if isinstance(value, StepEntry):
        return value
    known = components(Kind.STEP)
    if not isinstance(value, dict) or len(value) != 1:
        raise refuse(complaint((), f"a step is one key, its name, with its options{_found(value)}", _step_form(value)))
    ((name, options),) = value.items()
    if name not in known:
        fix = suggestion(name, known, "steps")
        where = (name,) if is_shown(name) else ()
        raise refuse(complaint(where, f"there is no step called {quoted(name)}", fix, at_key=True))
    read = _step_reader(name).validate_python({name: {} if options is None else options}, context=info.context)
    return StepEntry(name, read[name])


@cache
def _step_reader(name: str) -> TypeAdapter[dict[str, Any]]:
    # A mapping of one key rather than the class itself, so that errors name the step on their way.
    config: type[StepConfig] = components(Kind.STEP)[name].config_class()
    return TypeAdapter(dict[str, config])  # type: ignore[valid-type]


def _step_form(value: Any) -> str:
    known = components(Kind.STEP)
    named = [key for key in value if key in known] if isinstance(value, (dict, str)) else []
    if isinstance(value, str) and value in known:
        return f"Write: - {value}: {{}}."
    if len(named) > 1:
        return "Begin each step with its own '- '."
    if named and isinstance(value, dict):
        return f"Indent the options further than '{named[0]}:', or write them as '{named[0]}: {{...}}'."
    return 'Write, for example: - where: "price > 10".'


class _AnyStep:
    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        choices = []
        for name, component in components(Kind.STEP).items():
            config = component.config_class()
            options = handler(config.__pydantic_core_schema__)
            if config.main_option is not None:
                bare = handler.resolve_ref_schema(options)["properties"][config.main_option]
                options = {"anyOf": [options, {k: v for k, v in bare.items() if k != "title"}]}
            choices.append(
                {
                    "type": "object",
                    "description": component.summary,
                    "properties": {name: options},
                    "required": [name],
                    "additionalProperties": False,
                }
            )
        return {"oneOf": choices}


def _written(step: StepEntry) -> dict[str, Any]:
    return {step.name: step.config.model_dump(mode="json")}


ChosenStep = Annotated[StepEntry, PlainValidator(_step), PlainSerializer(_written), _AnyStep()]


def _found(value: object) -> str:
    if isinstance(value, dict):
        return f", found {len(value)} keys"
    if isinstance(value, list):
        return ", found a list"
    # A text is not repeated: it may be a URL with a password.
    return ", found nothing" if value is None else ", found a single value"
