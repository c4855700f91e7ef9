"""Options that every SQL destination has."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator

from penstock.config.component import DestinationConfig, Offer, offered_by
from penstock.destinations.sql.type_names import TypeNames

if TYPE_CHECKING:
    from penstock.destinations.sql.stage.allowed_tables import AllowedTables


_PLACE = ("url", "path", "account", "project", "dataset", "database", "database_schema")
"""The options that say where the tables are."""


class LoadMode(StrEnum):
    """How records become rows."""

    APPEND = "append"
    MERGE = "merge"
    MIRROR = "mirror"


class OnTypeConflict(StrEnum):
    """What happens to a value that its column cannot hold."""

    UNMAPPED = "unmapped"
    WIDEN = "widen"
    FAIL = "fail"


class SchemaChanges(StrEnum):
    """Whether tables may get columns."""

    EVOLVE = "evolve"
    FREEZE = "freeze"


class FloatType(StrEnum):
    """How numbers with a point are stored."""

    NUMERIC = "numeric"
    DOUBLE = "double"


MIRROR_VARIABLES = frozenset(("namespace", "schema", "table"))
"""What the template of a mirror's table is made of."""
MIRRORED_TABLE = "{{ table }}"


class SqlConfig(DestinationConfig):
    """Base of the options of SQL destinations."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    type_names: ClassVar[TypeNames | None] = None
    """The types that a step can cast to there."""

    load: LoadMode | None = Field(
        default=None,
        description="How records become rows: `append` (the default) inserts each as a row, `merge` (implied by a"
        " `primary_key`) updates the row with the same key, `mirror` applies inserts, updates and deletes by the"
        " source's own key, in the order of the log. Deletes and truncates are not rows: `append` and `merge` skip"
        " them.",
    )
    table: str | None = Field(
        default=None,
        description="The table that a record goes to: a name, or a template over the record as it is in the log, such"
        " as `{{ event_type }}`. The result is turned into a valid name (lower case, `_` for anything but letters and"
        " digits). A record for which it comes out empty is skipped. The default is `events`. With `load: mirror` a"
        " template has `{{ namespace }}` and its parts `{{ schema }}` and `{{ table }}`, and the default is"
        " `{{ table }}`.",
    )
    tables: tuple[str, ...] = Field(
        default=(),
        description="The tables that records may go to: names, and patterns between slashes that a whole name must"
        " match (`/shop_.*/`). A record that names another fails as `table_not_allowed`. By default any name is"
        " allowed: set this wherever `table` is a template over data from strangers.",
    )
    max_tables: int = Field(
        default=200,
        ge=1,
        description="Most tables that the route makes. Rows for further tables go into the one table"
        " `_penstock_overflow_<route>`, each with the table that it was meant for in `_penstock_table`. Does not apply"
        " to mirrors: their tables are the source's.",
    )
    adopt: tuple[str, ...] = Field(
        default=(),
        description="Existing tables that Penstock did not make but may write. Rows for any other table that somebody"
        " else made, or another route, fail as `table_not_ours` (those of a mirror wait). A table of another route can"
        " also be shared: by listing it in `tables`, or by a `table` that is no template.",
    )
    primary_key: tuple[str, ...] = Field(
        default=(),
        description="Columns that identify a row. With a key, a record updates the row that has its key, and columns"
        " that it does not carry keep their value; without one, every record is a row. With `load: mirror` the source"
        " defines the key, unless it is given here.",
    )
    version_column: str | None = Field(
        default=None,
        description="With a key: a record changes a row only if its value in this column is not lower than the row's."
        " Without it, the last record wins: the one that was acknowledged last.",
    )
    on_type_conflict: OnTypeConflict = Field(
        default=OnTypeConflict.UNMAPPED,
        description="A value that its column cannot hold without loss: `unmapped` keeps it in the column `_unmapped`,"
        " `widen` changes the column's type where the engine can (else as `unmapped`), `fail` fails the record.",
    )
    schema_changes: SchemaChanges = Field(
        default=SchemaChanges.EVOLVE,
        alias="schema",
        description="`evolve` adds columns for new fields; `freeze` puts new fields into `_unmapped` once the table"
        " exists.",
    )
    max_columns: int = Field(
        default=1_000, ge=1, description="Most columns of a table; fields beyond it go into `_unmapped`."
    )
    infer_timestamps: bool = Field(
        default=False,
        description="Treat strings as timestamps if all of a batch's are RFC 3339 timestamps (with `T`).",
    )

    def templates(self) -> Mapping[str, str]:
        return {"table": self.table} if self.table is not None and "{" in self.table and not self.mirrors else {}

    def type_problem(self, asked: str) -> tuple[str, str] | None:
        return None if self.type_names is None else self.type_names.problem(asked)

    @field_validator("table")
    @classmethod
    def _is_a_template(cls, value: str | None) -> str | None:
        if value is None:
            return None
        # Jinja is only loaded for a table that could be a template.
        if "{" in value:
            from penstock.destinations.sql.stage.template import EventTemplate

            EventTemplate(value)
        elif not value.strip():
            raise ValueError("a table needs a name")
        return value

    @field_validator("tables")
    @classmethod
    def _names_or_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from penstock.destinations.sql.stage.allowed_tables import AllowedTables

        AllowedTables.of(value)
        return value

    @field_validator("adopt")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from penstock.destinations.sql.stage.allowed_tables import table_name

        return tuple(dict.fromkeys(map(table_name, value)))

    @field_validator("primary_key")
    @classmethod
    def _key_of_columns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from penstock.flatten.column_naming import key_name

        for name in value:
            if key_name(name) != name:
                raise ValueError(f"'{name}' is no column; its name would be '{key_name(name)}'")
        if len(set(value)) != len(value):
            raise ValueError("a column is in the key twice")
        return value

    @field_validator("version_column")
    @classmethod
    def _version_is_a_column(cls, value: str | None) -> str | None:
        return value if value is None else cls._key_of_columns((value,))[0]

    @property
    def mirrors(self) -> bool:
        return self.load is LoadMode.MIRROR

    @property
    def last_record_wins(self) -> bool:
        return self.mirrors or (bool(self.primary_key) and self.version_column is None)

    _of_others: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def place(self) -> tuple[object, ...]:
        found = ((name, getattr(self, name)) for name in _PLACE if name in type(self).model_fields)
        return (self.type, *found)

    @property
    def named_by_config(self) -> frozenset[str]:
        named = self.named_tables
        return frozenset(self.adopt) | (named.names if named is not None else frozenset())

    def without_tables(self, names: frozenset[str]) -> Self:
        made = self.model_copy()
        made._of_others = names - self.named_by_config
        return made

    @property
    def tables_of_others(self) -> frozenset[str]:
        """What other routes of the config name at the same target."""
        return self._of_others

    @property
    def named_tables(self) -> AllowedTables | None:
        """The tables that the config names, in ``tables`` or as the only one; ``None`` if it names none."""
        from penstock.destinations.sql.stage.allowed_tables import AllowedTables
        from penstock.flatten.column_naming import key_name

        if self.tables:
            return AllowedTables.of(self.tables)
        if "{" in self.table_template:
            return None
        return AllowedTables(frozenset({key_name(self.table_template.strip())}))

    @property
    def table_template(self) -> str:
        return self.table or (MIRRORED_TABLE if self.mirrors else "events")

    @model_validator(mode="after")
    def _loads_as_it_can(self) -> Self:
        if self.load is LoadMode.APPEND and self.primary_key:
            raise ValueError("load is append, which never updates a row; leave primary_key out or say load: merge")
        if self.load is LoadMode.MERGE and not self.primary_key:
            raise ValueError("load is merge, which needs a primary_key")
        if not self.mirrors:
            return self
        if Offer.MIRROR not in self.offers:
            raise ValueError(f"{self.type} cannot mirror tables; {offered_by(Offer.MIRROR)} can")
        if self.version_column is not None:
            raise ValueError("a mirror follows the order of the log; leave version_column out")
        if self.table is not None and "{" in self.table:
            from penstock.destinations.sql.stage.template import EventTemplate

            unknown = EventTemplate(self.table).fields - MIRROR_VARIABLES
            if unknown:
                raise ValueError(
                    f"a mirror's table is named by namespace, schema and table, not by {', '.join(sorted(unknown))}"
                )
        return self

    @model_validator(mode="after")
    def _goes_where_it_may(self) -> Self:
        from penstock.destinations.sql.stage.allowed_tables import AllowedTables
        from penstock.flatten.column_naming import key_name

        allowed = AllowedTables.of(self.tables)
        strangers = [name for name in self.adopt if not allowed.allows(name)]
        if strangers:
            raise ValueError(f"adopt names {', '.join(strangers)}, which `tables` does not allow; put it there too")
        if "{" not in self.table_template and not allowed.allows(key_name(self.table_template.strip())):
            raise ValueError(f"`tables` does not allow '{self.table_template}', the table that records go to")
        return self

    @model_validator(mode="after")
    def _fits_its_key(self) -> Self:
        if self.version_column is not None and not self.primary_key:
            raise ValueError("version_column needs a primary_key: without one nothing is ever updated")
        if self.max_columns < len(self.primary_key):
            raise ValueError(
                f"max_columns is {self.max_columns}, but the key alone has {len(self.primary_key)} columns"
            )
        return self
