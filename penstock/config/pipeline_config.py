"""The whole config of a pipeline, as it stands in ``pipeline.yaml``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails

from penstock.config.choices import LIFTED, ChosenDestination, ChosenSource, ChosenStep, complaint, refuse
from penstock.config.component import ComponentConfig, SourceConfig, StepConfig, namespace_pattern
from penstock.config.problems import suggestion
from penstock.config.shown_keys import path_part
from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.database_url import check_url
from penstock.config.value_types.listen_address import Address
from penstock.config.value_types.quantities import ByteSize, Duration
from penstock.config.value_types.spark_settings import checked_master, checked_settings
from penstock.log.config import LogConfig

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"'{path_part(name)}' is not a name; use up to 63 of a-z, 0-9, '-' and '_', beginning with a letter"
        )
    return name


Name = Annotated[str, AfterValidator(checked_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
"""Names become folders, partitions and keys of the ledger, so they must be plain."""

_MASK = re.compile(r"00?[0-7]{2}")


def checked_mask(mask: str) -> str:
    """Refuse a mask that takes rights from the own user: writing the mode of files instead (700) would shut the user
    out, and let all others in."""
    if _MASK.fullmatch(mask) is None:
        raise ValueError(f"'{mask}' is not a mask; it says what is taken away, in three digits of 0-7, the first one 0")
    return mask


Mask = Annotated[str, AfterValidator(checked_mask), WithJsonSchema({"type": "string", "pattern": f"^{_MASK.pattern}$"})]


class LedgerConfig(ComponentConfig):
    """Where the accounts are kept."""

    url: SecretStr | None = Field(
        default=None,
        description="SQLAlchemy URL of a database that several machines share, such as"
        " `postgresql+psycopg://user@host/penstock`. By default a SQLite file in `data_dir`.",
    )

    @field_validator("url")
    @classmethod
    def _usable(cls, value: SecretStr | None) -> SecretStr | None:
        # The URL may hold a password, so no message repeats it.
        if value is None or (url := value.get_secret_value()).startswith("sqlite:///"):
            return value
        if found := re.match(r"postgres(?:ql)?(?:\+psycopg)?://", url):
            check_url(url, "postgresql://user:password@host:5432/database")
            return SecretStr(f"postgresql+psycopg://{url[found.end() :]}")
        raise ValueError("not a database that a ledger can be kept in; write postgresql://... or sqlite:///...")


class EngineConfig(ComponentConfig):
    """How Spark is run."""

    master: Annotated[str, AfterValidator(checked_master)] = Field(
        default="local[*]", description="Spark master: `local[*]`, `local[2]`, `spark://host:7077` ..."
    )
    drain: Duration = Field(
        default=30.0, ge=0, description="How long a stop waits for batches under way before it cuts them off."
    )
    restart_backoff: Duration = Field(
        default=1.0, gt=0, description="Wait before a crashed route is started again; doubles with each crash in a row."
    )
    restart_backoff_max: Duration = Field(default=60.0, gt=0, description="The longest such wait.")
    silence: Duration = Field(
        default=60.0,
        ge=20,
        description="How long the engine, or its JVM, may give no sign of life before it is killed and started again.",
    )
    metrics: Address | None = Field(
        default=None,
        description="host:port on which the engine shows its counters to Prometheus (`/metrics`); absent: nowhere.",
    )
    spark: Annotated[
        dict[str, Annotated[str, BeforeValidator(lambda value: _spark_text(value))]], AfterValidator(checked_settings)
    ] = Field(default={}, description="Further Spark settings, such as `spark.driver.memory: 4g`; they win over ours.")


def _spark_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


class RouteMode(StrEnum):
    STREAM = "stream"
    BATCH = "batch"


class OnError(StrEnum):
    DEAD_LETTER = "dead_letter"
    STOP = "stop"


DEFAULT_EVERY = {RouteMode.STREAM: 0.25, RouteMode.BATCH: 300.0}

_ONE_OR_MANY = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class RouteConfig(ComponentConfig):
    """From the log, through steps, to one destination. ``mode``, ``every`` and ``only_keys`` may also be written
    inside ``to``."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    from_: Annotated[
        list[Name],
        BeforeValidator(_listed),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
    ] = Field(alias="from", min_length=1, description="Names of the sources whose records it takes: one, or a list.")
    namespace: str = Field(
        default=".*", description="Regular expression (unanchored, slashes optional): which namespaces it takes."
    )
    only_keys: Annotated[list[str], BeforeValidator(_listed), WithJsonSchema(_ONE_OR_MANY)] = Field(
        default=[],
        description="Ids of the tokens whose records it takes: one, or a list. Records with another token, or none, are"
        " skipped and counted under `only_keys`. Empty: it takes all.",
    )
    steps: list[ChosenStep] = Field(default=[], description="What happens to the records on their way, in order.")
    to: ChosenDestination = Field(description="Where they go.")
    mode: RouteMode = Field(
        default=RouteMode.STREAM, description="`stream`: small batches all the time. `batch`: one now and then."
    )
    every: Duration | None = Field(
        default=None,
        gt=0,
        description="Time from one batch to the next; by default `250ms` for stream, `5m` for batch.",
    )
    max_records: int = Field(default=1_000_000, gt=0, description="Most records in one batch.")
    max_bytes: ByteSize = Field(default=2**30, gt=0, description="Most bytes in one batch, as the log stores them.")
    max_hold_bytes: ByteSize | None = Field(
        default=None,
        gt=0,
        description="Most bytes of the log, as records have them in memory, that are kept for what waits in a step such"
        " as `gather`: from the oldest record that waits up to where the route stands. Past it the oldest of what waits"
        " goes on as it is, until at most four fifths of it are kept. By default no limit.",
    )
    on_error: OnError = Field(
        default=OnError.DEAD_LETTER,
        description="What happens to a record that a step fails or the destination refuses. `dead_letter`: it goes to"
        " the failed store, and the route goes on. `stop`: the route stops before it and waits for an operator"
        " (`penstock offset ack`); other routes go on.",
    )

    step_timeout: Duration | None = Field(
        default=120.0,
        gt=0,
        description="How long the steps may take for one batch of records from the log (8 MiB at most). A step that"
        " takes longer is killed; the record that caused it is isolated and fails with `timed_out`. null: no limit.",
    )

    archive: bool = Field(
        default=False,
        description="Keep what this route takes, and what is replayed to it, as it came: in files"
        " `streaming-archive.dst=<route>-...` (`mode: batch`: `incoming.tok=<token>-...`) and `failed.dst=<route>-...`,"
        " written by a route of its own that is called `<route>-archive`.",
    )

    @property
    def interval(self) -> float:
        """Seconds from one batch to the next."""
        if self.every is not None:
            return self.every
        oldest = self.to.gathers_for if self.mode is RouteMode.STREAM else None
        # A batch takes its time, too.
        return DEFAULT_EVERY[self.mode] if oldest is None else max(oldest / 2, oldest - 1.0)

    @property
    def step_configs(self) -> list[tuple[str, StepConfig]]:
        return [(step.name, step.config) for step in self.steps]

    @field_validator("namespace")
    @classmethod
    def _compiles(cls, value: str) -> str:
        namespace_pattern(value)
        return value

    @model_validator(mode="after")
    def _types_are_there(self) -> Self:
        wrong = [
            complaint(("steps", number, step.name, *place), *problem)
            for number, step in enumerate(self.steps)
            for place, asked in step.config.types_asked()
            if (problem := self.to.type_problem(asked)) is not None
        ]
        if wrong:
            raise refuse(*wrong)
        return self

    @model_validator(mode="after")
    def _can_hold(self) -> Self:
        places = [number for number, step in enumerate(self.steps) if step.config.holds]
        if not places:
            if self.max_hold_bytes is not None:
                what = (
                    "it limits what a step keeps back, and this route has no such step; what its destination has not"
                    " taken yet stays in the log until it is"
                )
                raise refuse(complaint(("max_hold_bytes",), what, "Leave `max_hold_bytes` out.", True))
            return self
        first = ("steps", places[0], self.steps[places[0]].name)
        name = f"'{self.steps[places[0]].name}' keeps records back"
        wrong = []
        if len(places) > 1:
            other = ("steps", places[1], self.steps[places[1]].name)
            fix = "Let each of them have a route of its own."
            wrong.append(complaint(other, f"{name}, and a route has one such step at most", fix, True))
        if self.on_error is OnError.STOP:
            fix = "Leave `on_error` out: what fails goes to the failed store, and can be replayed."
            what = f"{name}, so the route cannot stop before one (`on_error: stop`): others wait around it"
            wrong.append(complaint(first, what, fix, True))
        if self.to.mirrors:
            fix = "Leave the step out, or load the changes as rows of a table."
            what = f"{name}, and a mirror needs every change in its order"
            wrong.append(complaint(first, what, fix, True))
        if places[0] > 0 and self.steps[places[0]].config.must_be_first:
            what = f"'{self.steps[places[0]].name}' reads records as their source made them"
            wrong.append(complaint(first, what, "Let it be the first step of the route.", True))
        if self.to.takes_otlp and len(self.steps) > places[0] + 1 and self.steps[places[0]].config.must_be_first:
            behind = self.steps[places[0] + 1].name
            what = f"'{behind}' works on JSON, and this destination gets spans as OTLP requests"
            fix = f"Leave '{behind}' out, or give it a route of its own, to another destination."
            wrong.append(complaint(("steps", places[0] + 1, behind), what, fix, True))
        if wrong:
            raise refuse(*wrong)
        return self

    @model_validator(mode="after")
    def _can_stop(self) -> Self:
        if self.to.settles_late and self.on_error is OnError.STOP:
            what = f"'{self.to.type}' lets some records wait while later ones are written, so the route cannot stop"
            fix = "Leave `on_error` out: what fails goes to the failed store, and can be replayed."
            raise refuse(complaint(("on_error",), f"{what} before one", fix, True))
        return self

    @classmethod
    def _expanded(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("to"), dict):
            return value
        lifted = {key: value["to"][key] for key in LIFTED if key in value["to"]}
        twice = [
            complaint(("to", key), f"'{key}' stands in the route and in its destination", "Keep one of the two.", True)
            for key in lifted
            if key in value
        ]
        if twice:
            raise refuse(*twice)
        return {**value, **lifted}


ARCHIVE_ROUTE = "archive"


class ArchiveOptions(ComponentConfig):
    """A copy of all that the sources bring, written by a route of its own that is called `archive`."""

    path: LocalPath | None = Field(
        default=None, description="Folder of the archive; by default `archive` in `data_dir`. Nothing is ever removed."
    )
    every: Duration = Field(default=300.0, gt=0, description="Time from one set of files to the next.")


def _switched(value: Any) -> Any:
    if isinstance(value, bool):
        return {} if value else None
    if value is None or isinstance(value, (dict, ArchiveOptions)):
        return value
    raise refuse(complaint((), "expected true, false or a mapping of options", "Write: archive: true."))


class PipelineConfig(ComponentConfig):
    """Sources, one log, routes."""

    name: Name = Field(description="Name of the pipeline.")
    data_dir: LocalPath = Field(
        default=Path("data"),
        validate_default=True,
        description="Folder for everything that Penstock keeps: log, ledger, checkpoints, failed records. Relative to"
        " this file.",
    )
    umask: Mask = Field(
        default="077",
        description="What is taken from the modes of files and folders that the pipeline makes, in `data_dir` and"
        " elsewhere. `077` leaves them to its own user alone (folders 0700, files 0600), `027` lets the group read.",
    )
    log: LogConfig = Field(default_factory=LogConfig, description="The durable log between sources and routes.")
    ledger: LedgerConfig = Field(default_factory=LedgerConfig, description="Where the accounts are kept.")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="How Spark is run.")
    sources: dict[Name, ChosenSource] = Field(min_length=1, description="What puts records into the log, by name.")
    routes: dict[Name, RouteConfig] = Field(default={}, description="What carries them on, by name.")
    archive: Annotated[
        ArchiveOptions | None, BeforeValidator(_switched, json_schema_input_type=bool | ArchiveOptions | None)
    ] = Field(
        default=None,
        description="`true`, or options: keep everything that the sources bring in gzip files per day and token, beside"
        " what the routes do with it. By default off: the log keeps it as long as its retention says.",
    )

    @property
    def file_mask(self) -> int:
        return int(self.umask, 8)

    @model_validator(mode="after")
    def _routes_fit(self) -> Self:
        wrong = unknown_sources(self.sources, {name: route.from_ for name, route in self.routes.items()})
        wrong += unknown_tokens(self.sources, self.routes)
        whole = {"from": list(self.sources)}
        added = {} if self.archive is None else {ARCHIVE_ROUTE: self._kept(self.archive, whole, {})}
        for name, route in self.routes.items():
            if route.archive:
                added[f"{name}-{ARCHIVE_ROUTE}"] = self._archive_of(name, route)
        for name, ours in added.items():
            if self.routes.setdefault(name, ours) != ours:
                what = f"'{name}' is the name of the route that `archive` adds"
                fix = "Give this one another name, or take `archive` out."
                wrong.append(complaint(("routes", name), what, fix, at_key=True))
        if wrong:
            raise refuse(*wrong)
        return self

    def _archive_of(self, name: str, route: RouteConfig) -> RouteConfig:
        """An archive of what one route takes, by the route's own filters."""
        names = "streaming-archive" if route.mode is RouteMode.STREAM else "incoming"
        taken = {"from": list(route.from_), "namespace": route.namespace, "only_keys": list(route.only_keys)}
        return self._kept(self.archive or ArchiveOptions(), taken, {"dst": name, "names": names})

    def _kept(self, options: ArchiveOptions, taken: dict[str, Any], to: dict[str, Any]) -> RouteConfig:
        """A route into the archive. Its limits are above what arrives between two batches: it must keep up."""
        folder = self.data_dir / "archive" if options.path is None else options.path
        return RouteConfig.model_validate(
            {
                **taken,
                "to": {"type": "archive", "path": folder, **to},
                "mode": RouteMode.BATCH,
                "every": options.every,
                "max_records": 30_000_000,
                "max_bytes": 16 * 2**30,
            }
        )


def unknown_sources(sources: Collection[str], taken: Mapping[str, Sequence[object]]) -> list[InitErrorDetails]:
    """The errors in the ``from`` of routes (``taken``: per route) if only these sources exist."""
    return [
        complaint(
            ("routes", route, "from", index),
            f"there is no source called '{name}'",
            suggestion(name, sources, "sources"),
        )
        for route, names in taken.items()
        for index, name in enumerate(names)
        if isinstance(name, str) and name not in sources
    ]


def unknown_tokens(sources: Mapping[str, SourceConfig], routes: Mapping[str, RouteConfig]) -> list[InitErrorDetails]:
    """The errors in the ``only_keys`` of routes: ids that none of their sources has, if all of them have tokens."""
    wrong = []
    for name, route in routes.items():
        declared = [sources[source].token_ids for source in route.from_ if source in sources]
        if len(declared) < len(route.from_) or None in declared:
            continue
        known = {token for ids in declared if ids is not None for token in ids}
        wrong += [
            complaint(
                ("routes", name, "only_keys", index),
                f"no source of this route has a token with the id '{token}'",
                suggestion(token, known, "tokens"),
            )
            for index, token in enumerate(route.only_keys)
            if token not in known
        ]
    return wrong
