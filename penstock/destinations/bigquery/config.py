"""Options of the destination ``bigquery``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from penstock.config.value_types.config_paths import LocalPath
from penstock.config.value_types.quantities import Duration
from penstock.destinations.bigquery.type_names import BIGQUERY_TYPES
from penstock.destinations.sql.config import SqlConfig
from penstock.destinations.sql.type_names import TypeNames


class BigqueryConfig(SqlConfig):
    type_names: ClassVar[TypeNames] = BIGQUERY_TYPES
    type: Literal["bigquery"] = Field(default="bigquery", description="Selects this destination.")
    project: str = Field(pattern=r"^[a-z][a-z0-9:.-]{4,}[a-z0-9]$", description="The project that the dataset is in.")
    dataset: str = Field(
        pattern=r"^[A-Za-z0-9_]{1,1024}$", description="The dataset that tables are in. It must exist."
    )
    location: str | None = Field(
        default=None, description="Where the dataset is, such as `EU` or `europe-west1`; found out if not given."
    )
    credentials: LocalPath | None = Field(
        default=None,
        description="The key file of a service account; without it, the application default credentials are used.",
    )
    job_timeout: Duration = Field(
        default=600.0, gt=0, description="How long to wait for a job. One that ends later is recognised, not repeated."
    )
