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
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails

from penstock.config.addresses import Address
from penstock.config.choices import LIFTED, ChosenDestination, ChosenSource, ChosenStep, complaint, refuse
from penstock.config.component import ComponentConfig, StepConfig, namespace_pattern
from penstock.config.paths import LocalPath
from penstock.config.problems import suggestion
from penstock.config.quantities import ByteSize, Duration
from penstock.log.config import LogConfig

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"'{name}' is not a name; use up to 63 of a-z, 0-9, '-' and '_', beginning with a letter")
    return name


Name = Annotated[
    str, AfterValidator(_checked_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})
]
"""Names become folders, partitions and keys of the ledger, so they are kept plain."""


class LedgerConfig(ComponentConfig):
    """Where the accounts are kept."""

    url: str | None = Field(
        default=None,
        repr=False,
        description="SQLAlchemy URL of a database that several machines share, such as"
        " `postgresql+psycopg://user@host/penstock`. By default a SQLite file in `data_dir`.",
    )

    @field_validator("url")
    @classmethod
    def _usable(cls, url: str | None) -> str | None:
        # The URL may hold a password, so no message repeats it.
        if url is None or re.match(r"sqlite:///", url):
            return url
        if found := re.match(r"postgres(?:ql)?(?:\+psycopg)?://", url):
            return f"postgresql+psycopg://{url[found.end() :]}"
        raise ValueError("not a database that a ledger can be kept in; write postgresql://... or sqlite:///...")


class EngineConfig(ComponentConfig):
    """How Spark is run."""

    master: str = Field(default="local[*]", description="Spark master: `local[*]`, `local[2]`, `spark://host:7077` ...")
    drain: Duration = Field(
        default=30.0, ge=0, description="How long a stop waits for batches under way before it cuts them off."
    )
    restart_backoff: Duration = Field(
        default=1.0, gt=0, description="Wait before a crashed route is started again; doubles with each crash in a row."
    )
    restart_backoff_max: Duration = Field(default=60.0, gt=0, description="The longest such wait.")
    metrics: Address | None = Field(
        default=None,
        description="host:port on which the engine shows its counters to Prometheus (`/metrics`); absent: nowhere.",
    )
    spark: dict[str, Annotated[str, BeforeValidator(lambda value: _spark_text(value))]] = Field(
        default={}, description="Further Spark settings, such as `spark.driver.memory: 4g`; they win over ours."
    )


def _spark_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


class RouteMode(StrEnum):
    STREAM = "stream"
    BATCH = "batch"


DEFAULT_EVERY = {RouteMode.STREAM: 0.25, RouteMode.BATCH: 300.0}


class RouteConfig(ComponentConfig):
    """From the log, through steps, to one destination. ``mode`` and ``every`` may also be written inside ``to``."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    from_: Annotated[
        list[Name],
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
    ] = Field(alias="from", min_length=1, description="Names of the sources whose records it takes: one, or a list.")
    namespace: str = Field(
        default=".*", description="Regular expression (unanchored, slashes optional): which namespaces it takes."
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
    max_records: int = Field(default=500_000, gt=0, description="Most records in one batch.")
    max_bytes: ByteSize = Field(
        default=256 * 2**20, gt=0, description="Most bytes in one batch, as the log stores them."
    )

    @property
    def interval(self) -> float:
        """Seconds from one batch to the next."""
        return DEFAULT_EVERY[self.mode] if self.every is None else self.every

    @property
    def step_configs(self) -> list[tuple[str, StepConfig]]:
        return [(step.name, step.config) for step in self.steps]

    @field_validator("namespace")
    @classmethod
    def _compiles(cls, value: str) -> str:
        namespace_pattern(value)
        return value

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


class PipelineConfig(ComponentConfig):
    """Sources, one log, routes."""

    name: Name = Field(description="Name of the pipeline.")
    data_dir: LocalPath = Field(
        default=Path("data"),
        validate_default=True,
        description="Folder for everything that Penstock keeps: log, ledger, checkpoints, failed records. Relative to"
        " this file.",
    )
    log: LogConfig = Field(default_factory=LogConfig, description="The durable log between sources and routes.")
    ledger: LedgerConfig = Field(default_factory=LedgerConfig, description="Where the accounts are kept.")
    engine: EngineConfig = Field(default_factory=EngineConfig, description="How Spark is run.")
    sources: dict[Name, ChosenSource] = Field(min_length=1, description="What puts records into the log, by name.")
    routes: dict[Name, RouteConfig] = Field(default={}, description="What carries them on, by name.")

    @model_validator(mode="after")
    def _routes_name_their_sources(self) -> Self:
        wrong = unknown_sources(self.sources, {name: route.from_ for name, route in self.routes.items()})
        if wrong:
            raise refuse(*wrong)
        return self


def unknown_sources(sources: Collection[str], taken: Mapping[str, Sequence[object]]) -> list[InitErrorDetails]:
    """What is wrong in the ``from`` of routes (``taken``: per route) if only these sources exist."""
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
