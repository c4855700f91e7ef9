"""The few calls of Google's client that we use, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as JobTimeout
from typing import IO, Protocol

from google.api_core.exceptions import BadRequest, GoogleAPIError
from google.auth.exceptions import GoogleAuthError
from google.cloud.bigquery import LoadJobConfig, QueryJobConfig, SchemaField
from requests.exceptions import RequestException

from penstock.errors import RefusedError, TransientError


class Job(Protocol):
    @property
    def error_result(self) -> Mapping[str, object] | None:
        """Why it failed, once it has."""

    def result(self, *, timeout: float | None = None) -> object:
        """Wait for its end; raises the error that it failed with."""


class Query(Job, Protocol):
    def result(self, *, timeout: float | None = None) -> Iterable[Sequence[object]]:
        """Wait for its end, and return the rows of its last statement."""


class PrimaryKey(Protocol):
    @property
    def columns(self) -> list[str]: ...


class Constraints(Protocol):
    @property
    def primary_key(self) -> PrimaryKey | None: ...


class TableInfo(Protocol):
    @property
    def schema(self) -> list[SchemaField]: ...

    @property
    def table_constraints(self) -> Constraints | None: ...


class Client(Protocol):
    """A part of ``google.cloud.bigquery.Client``, under its own names."""

    def get_table(self, table: str) -> TableInfo:
        """Raises ``NotFound``."""

    def query(self, query: str, *, job_config: QueryJobConfig, job_id: str | None = None) -> Query:
        """Raises ``Conflict`` if there is a job of that id."""

    def get_job(self, job_id: str) -> Job: ...

    def load_table_from_file(
        self, file_obj: IO[bytes], destination: str, *, rewind: bool, job_config: LoadJobConfig
    ) -> Job: ...

    def delete_table(self, table: str, *, not_found_ok: bool) -> None: ...

    def close(self) -> None: ...


ERRORS = (GoogleAPIError, GoogleAuthError, RequestException, JobTimeout, OSError)
"""Whatever the client may raise that is not a bug of ours."""


def as_penstock_error(error: Exception, refuses: bool = True) -> TransientError | RefusedError:
    """Whether BigQuery refuses the rows themselves or cannot load them now (quotas, servers, conflicting transactions,
    a missing permission, a table that somebody changes)."""
    said = error.message if isinstance(error, GoogleAPIError) and hasattr(error, "message") else str(error)
    said = " ".join(str(said).split()) or type(error).__name__
    message = f"BigQuery says: {said[:1_000]}"
    if refuses and isinstance(error, BadRequest) and not any(word in said for word in _NOT_THE_ROWS):
        return RefusedError("PEN-DST-051", message, "Fix the value or the table, then: penstock failed replay")
    return TransientError("PEN-DST-052", message, "See that BigQuery can be reached: penstock doctor")


_NOT_THE_ROWS = (
    "concurrent update",
    "Transaction is aborted",
    "Syntax error",
    "Unrecognized name",
    "Not found",
    "Could not serialize access",
    "Resources exceeded",
    "rateLimitExceeded",
    "quotaExceeded",
)
"""Words of errors that come as a bad request but do not concern the data."""
