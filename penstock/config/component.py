"""The bases of every component's config class: one declaration for parsing, checking, JSON Schema and the docs.

A component's ``config.py`` takes its base from here and not from the contract modules, which need Arrow: a config can
then be checked without loading anything heavy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from penstock.registry import Kind, components


@dataclass
class ReadingContext:
    """The context (pydantic's) while a file is read."""

    folder: Path
    """Where relative paths start."""
    readers: list[tuple[object, type[BaseModel]]] = field(default_factory=list)
    """Which class has read which mapping: it knows the keys to suggest."""


class ComponentConfig(BaseModel):
    """Typed, frozen, and strict about keys. Every field carries a description: it is the reference page.

    A class with a ``main_option`` may be written as that option's bare value: ``where: "price > 10"`` is
    ``where: {condition: "price > 10"}``. With ``bare_map``, a mapping that lacks that option is its value, too:
    ``set: {total: ...}`` is ``set: {fields: {total: ...}}``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    main_option: ClassVar[str | None] = None
    bare_map: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        if cls.bare_map and isinstance(value, dict) and cls.main_option not in value:
            value = {cls.main_option: value}
        if isinstance(info.context, ReadingContext):
            info.context.readers.append((value, cls))
        return cls._expanded(value)

    @classmethod
    def _expanded(cls, value: Any) -> Any:
        """Expand the short forms of these options."""
        if cls.main_option is None or isinstance(value, (dict, BaseModel)):
            return value
        return {cls.main_option: value}


class SampleFile(NamedTuple):
    path: Path
    delimiter: str | None = None
    """The delimiter of a CSV file; ``None``: its lines are JSON."""
    columns: tuple[str, ...] = ()
    """The columns of a CSV file without a header line."""


class Listening(NamedTuple):
    """Where a source takes connections."""

    address: str
    tls: bool


class SourceConfig(ComponentConfig):
    """Base of every source's options; each subclass narrows ``type`` to its own name."""

    type: str = Field(description="Which source this is.")

    adds: ClassVar[frozenset[str]] = frozenset()
    """Fields that the source itself gives to every event."""

    bounded: ClassVar[bool] = False
    """Whether ``run --once`` runs it to its end (a file) or leaves it out (a server)."""

    @property
    def listening(self) -> Listening | None:
        """``None`` for a source that does not wait for anybody to connect."""
        return None

    @property
    def token_ids(self) -> list[str] | None:
        """The ids of its tokens; ``None`` for a source whose records carry others, or none."""
        return None

    @property
    def partitions(self) -> int:
        """How many partitions of the log it fills at a time."""
        return 1

    def sample_files(self) -> list[SampleFile]:
        """Files with sample events of the source, if it has any: checks read a little of them."""
        return []


class StepConfig(ComponentConfig):
    """Options that every step has."""

    holds: ClassVar[bool] = False
    """Whether the step decides over several batches, so that its route has state: it is a ``HoldingStep``."""

    must_be_first: ClassVar[bool] = False
    """Whether it reads records as their source made them, so that no step may stand before it."""

    namespace: str | None = Field(
        default=None,
        description="Regular expression (unanchored, slashes optional). Records of other namespaces pass unchanged.",
    )

    def types_asked(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """The types that the step casts to, each with its place in the options."""
        yield from ()

    @field_validator("namespace")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            namespace_pattern(value)
        return value


class Offer(StrEnum):
    """What a destination may do beyond loading rows."""

    MIRROR = "follows the tables of a source, change by change"
    REMAP = "reads and moves what tables keep in _unmapped"


def offered_by(offer: Offer) -> str:
    """The destinations that offer it, by name."""
    cards = components(Kind.DESTINATION).values()
    return " and ".join(card.name for card in cards if offer in card.config_class().offers)


class IntakeLimits(NamedTuple):
    """When sources refuse what comes, while a destination does not take what it is given."""

    age: float | None
    """Seconds for which something has failed; ``None``: however long."""
    bytes: int | None
    """How much of the log waits for the route; ``None``: however much."""
    retry_after: float
    """What senders are told to wait."""


class DestinationConfig(ComponentConfig):
    """Base of every destination's options; each subclass narrows ``type`` to its own name."""

    offers: ClassVar[frozenset[Offer]] = frozenset()
    settles_late: ClassVar[bool] = False
    """Whether some records wait at it while later ones are written."""
    takes_otlp: ClassVar[bool] = False
    """Whether rows of spans come to it as OTLP requests, and not as JSON."""
    type: str = Field(description="Which destination this is.")

    def type_problem(self, asked: str) -> tuple[str, str] | None:
        """What is wrong with a type that a step casts to here, and how to fix it. Destinations without types accept any
        word."""
        return None

    @property
    def mirrors(self) -> bool:
        """Whether it follows the tables of a source, change by change."""
        return False

    @property
    def last_record_wins(self) -> bool:
        """Whether the order in which records are delivered decides the final value of a row."""
        return False

    @property
    def refuses_intake(self) -> IntakeLimits | None:
        """When sources refuse what comes, because it does not take what it is given; ``None``: never."""
        return None

    @property
    def gathers_for(self) -> float | None:
        """How old the oldest record of a batch may become, in seconds, before it is delivered; ``None``: it is
        delivered as soon as possible."""
        return None

    @property
    def place(self) -> tuple[object, ...]:
        """What tells one target from another; empty if nothing does."""
        return ()

    @property
    def named_by_config(self) -> frozenset[str]:
        """The tables that it names, whatever a record says."""
        return frozenset()

    def without_tables(self, names: frozenset[str]) -> Self:
        """The same, but records cannot name these tables: other routes to the same target have them."""
        return self

    def replays_of(self) -> str | None:
        """The route, other than its own, whose replayed records belong here too."""
        return None

    def templates(self) -> Mapping[str, str]:
        """The options that are templates over an event, by name."""
        return {}


def namespace_pattern(text: str) -> re.Pattern[str]:
    """``/orders.*/`` and ``orders.*`` alike. Raises ``ValueError`` with the reason for a bad one."""
    refuse_flags(text)
    bare = text[1:-1] if len(text) >= 2 and text[0] == text[-1] == "/" else text
    try:
        return re.compile(bare)
    except re.error as error:
        raise ValueError(f"'{text}' is not a regular expression: {error}") from error


def refuse_flags(text: str) -> None:
    """Refuse ``/orders/i``: it would only match namespaces with these slashes in them, which nobody means."""
    if (flagged := _FLAGGED.fullmatch(text)) is None:
        return
    expression, flags = flagged[1], "".join(flag for flag in "imsx" if flag in flagged[2])
    instead = f"/(?{flags}){expression}/" if flags else f"/{expression}/"
    raise ValueError(
        f"'{text}' has flags after its last slash, where they have no meaning. Write '{instead}';"
        " for a slash that is part of the namespace write [/]"
    )


_FLAGGED = re.compile(r"/(.+)/([dgimsuvxy]+)", re.DOTALL)
"""An expression between slashes, followed by letters that are flags in other languages."""
