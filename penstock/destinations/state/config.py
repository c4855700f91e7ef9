"""Options of the destination ``state``."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from penstock.config.component import ComponentConfig, DestinationConfig
from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.database_url import PostgresUrl
from penstock.config.value_types.quantities import Duration
from penstock.conflation.bundle import NAME_RULE, is_name
from penstock.conflation.kinds import Dependency, Kind, Kinds, Match, Sync
from penstock.destinations.state.store.reserved_tables import OWN_TABLES
from penstock.flatten.column_naming import column_name
from penstock.json.paths import parse_path

MAX_NAME = 63
"""The longest name of a table or column that every store takes, in bytes."""
MOST_WORKERS = 100
"""Connections: a server that nobody has set up for more takes as many."""


class OnInactive(StrEnum):
    """What becomes of the rows of a source that fell silent. With its next bundle it is active again."""

    KEEP = "keep"
    """They stay as they are."""
    MARK = "mark"
    """They stay, with the time in a column of their own, until the source reports again."""
    DELETE = "delete"
    """They go. The versions stay, so that nothing older comes back, but the same versions are taken again."""


class DependencyConfig(ComponentConfig):
    """What must be written before a bundle of a kind."""

    main_option = "kind"

    kind: str = Field(min_length=1, description="The kind that must be there first.")
    match: Match = Field(
        default=Match.EXACT,
        description="`exact`: the version that a bundle names must be the one that is there; `at_least`: a newer one"
        " will do, too.",
    )
    implicit: bool = Field(
        default=False,
        description="Bundles name no version: any of the same incarnation of their source, or of a later one, will do.",
    )


class KindConfig(ComponentConfig):
    """One kind of state that sources report."""

    name: str = Field(min_length=1, max_length=256, description="The kind, as bundles name it.")
    priority: int = Field(ge=0, description="The order inside a source: the lowest number is written first.")
    sync: Sync = Field(
        default=Sync.COMPLETE,
        description="`complete`: a bundle has all rows of its source, and what it lacks is deleted. `delta`: it has"
        " what changed since a bundle of the kind that it depends on. `hybrid`: it says what to create, update,"
        " delete or bring in line.",
    )
    table: str = Field(min_length=1, max_length=63, description="The table of its rows. Several kinds may share one.")
    rows: str = Field(
        default="/", description="Where in a bundle's `data` the array of rows is, such as `/items`; `/`: it is one."
    )
    key: tuple[str, ...] = Field(
        min_length=1, description="The fields that tell the rows of one source apart. The source is part of every key."
    )
    depends_on: DependencyConfig | None = Field(
        default=None, description="What must be written before it, if anything: a kind, or `{kind, match, implicit}`."
    )
    group: str = Field(
        default="",
        description="Kinds of different groups do not wait for each other: each group of a source is written alone.",
    )

    @field_validator("rows")
    @classmethod
    def _is_a_path(cls, value: str) -> str:
        if not all(parse_path(value) or ["-"]):
            raise ValueError(f"'{value}' is not the path of an array; write it as /items")
        return value

    @field_validator("key")
    @classmethod
    def _names_fields_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value):
            raise ValueError("a field of the key has no name; write key: [id]")
        columns = _columns(value)
        if len(set(columns)) < len(columns):
            raise ValueError("a field is named twice; name each once")
        if "source" in columns:
            raise ValueError("the source is part of every key; name only the fields of a row")
        return value

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not is_name(value):
            raise ValueError(f"no bundle can be of this kind; {NAME_RULE}")
        return value

    @field_validator("table")
    @classmethod
    def _fits_a_store(cls, value: str) -> str:
        if len(value.encode()) > MAX_NAME or not is_name(value):
            raise ValueError(f"a table's name has at most {MAX_NAME} bytes, none of them a control character")
        return value

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key, without the source."""
        return _columns(self.key)

    @property
    def kind(self) -> Kind:
        needed = self.depends_on
        dependency = None if needed is None else Dependency(needed.kind, needed.match, needed.implicit)
        return Kind(self.name, self.priority, self.sync, dependency, self.group)


def _columns(key: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(column_name(parse_path(field), MAX_NAME) for field in key)


class StateConfig(DestinationConfig):
    settles_late: ClassVar[bool] = True

    type: Literal["state"] = Field(default="state", description="Selects this destination.")
    url: PostgresUrl | None = Field(
        default=None,
        description="The PostgreSQL database: `postgresql://user:password@host:5432/database`. Give this or `path`.",
    )
    path: LocalPath | None = Field(
        default=None, description="The DuckDB file; made, with its folder, if it is missing. Give this or `url`."
    )
    database_schema: str = Field(
        default="public",
        min_length=1,
        max_length=63,
        description="The schema that tables are in, in PostgreSQL; made if it is missing.",
    )
    kinds: tuple[KindConfig, ...] = Field(min_length=1, description="The kinds of state that are taken.")
    workers: int = Field(
        default=10,
        ge=1,
        le=MOST_WORKERS,
        description="How many sources are written at the same time: as many connections are used.",
    )
    unit_patience: Duration = Field(
        default=2.0,
        gt=0,
        description="How long a batch waits for one write. A write that takes longer goes on by itself, and its source"
        " waits for it alone.",
    )
    max_attempts: int = Field(
        default=5,
        ge=1,
        description="How often a bundle is tried that the database refuses, each time after a longer pause. Then it"
        " fails, and what depends on it is told why.",
    )
    inactive_after: Duration = Field(
        default=300.0, gt=0, description="A source of which nothing came for so long is inactive."
    )
    on_inactive: OnInactive = Field(
        default=OnInactive.KEEP,
        description="What becomes of the rows of an inactive source: `keep` leaves them, `mark` writes the time into"
        " `_inactive_since`, `delete` removes them. Its next bundle brings it back.",
    )
    connect_timeout: Duration = Field(default=10.0, gt=0, description="How long to wait for a connection.")

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if (self.url is None) == (self.path is None):
            both = "both are given; remove one" if self.url is not None else "neither is given"
            raise ValueError(f"give url (PostgreSQL) or path (DuckDB): {both}")
        return self

    @model_validator(mode="after")
    def _has_kinds_that_agree(self) -> Self:
        try:
            _ = self.declared
        except ValueError as error:
            raise ValueError(f"kinds: {error}") from None
        tables: dict[str, KindConfig] = {}
        wholes: dict[str, KindConfig] = {}
        # DuckDB does not tell capitals from small letters.
        of = {kind.name: kind.table if self.path is None else kind.table.lower() for kind in self.kinds}
        for kind in self.kinds:
            if kind.table.lower() in OWN_TABLES:
                raise ValueError(
                    f"kinds: the table '{kind.table}' of '{kind.name}' is one that Penstock keeps itself; give the kind"
                    " another table"
                )
            if kind.sync is Sync.COMPLETE and (whole := wholes.setdefault(of[kind.name], kind)) is not kind:
                raise ValueError(
                    f"kinds: '{whole.name}' and '{kind.name}' are complete and share the table '{kind.table}': each"
                    " would delete the rows of the other; give them tables of their own"
                )
            other = tables.setdefault(of[kind.name], kind)
            if set(other.key_columns) != set(kind.key_columns):
                raise ValueError(
                    f"kinds: '{other.name}' and '{kind.name}' share the table '{kind.table}' and have different keys;"
                    " give them the same key, or tables of their own"
                )
            if other.group != kind.group:
                raise ValueError(
                    f"kinds: '{other.name}' and '{kind.name}' share the table '{kind.table}' and are in different"
                    " groups, so both would write it at once; put them in one group, or give them tables of their own"
                )
            base = kind.depends_on.kind if kind.sync is Sync.DELTA and kind.depends_on is not None else kind.name
            if of[kind.name] != of[base]:
                raise ValueError(f"kinds: '{kind.name}' has changes of '{base}' and another table; give it the same")
        return self

    @cached_property
    def declared(self) -> Kinds:
        """The kinds as conflation knows them. Raises ``ValueError`` for kinds that contradict each other."""
        return Kinds([each.kind for each in self.kinds])

    def kind(self, name: str) -> KindConfig:
        return next(each for each in self.kinds if each.name == name)

    @property
    def place(self) -> tuple[Any, ...]:
        where = self.url.get_secret_value() if self.url is not None else str(self.path)
        return (where, self.database_schema)

    @property
    def named_by_config(self) -> frozenset[str]:
        return frozenset(kind.table for kind in self.kinds)
