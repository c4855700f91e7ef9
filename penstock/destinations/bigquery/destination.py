"""Loads batches into Google BigQuery, each table of a batch exactly once.

Every batch opens its own client: nothing is held while there is nothing to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.destinations.bigquery.config import BigqueryConfig
from penstock.destinations.bigquery.dialect import BigqueryDialect, bigquery_dialect
from penstock.destinations.contract import Capabilities
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.session import Session
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.destinations.bigquery.client import Client
    from penstock.destinations.bigquery.session import BigquerySession


class BigqueryDestination(SqlDestination[BigqueryConfig]):
    capabilities = Capabilities(transactions=True, marks=True)

    @cached_property
    def dialect(self) -> BigqueryDialect:
        return bigquery_dialect(self.config.project, self.config.dataset)

    def session(self) -> AbstractContextManager[Session]:
        return self._session()

    @contextmanager
    def _session(self) -> Iterator[BigquerySession]:
        try:
            from penstock.destinations.bigquery.client import ERRORS, as_penstock_error
            from penstock.destinations.bigquery.session import BigquerySession
        except ImportError as error:
            raise PenstockError(
                "PEN-DST-050", "the destination 'bigquery' needs Google's client.", "Install penstock[bigquery]."
            ) from error
        try:
            client = self.client()
        except ERRORS as error:
            raise as_penstock_error(error, refuses=False) from error
        with closing(client):
            yield BigquerySession(client, self.dialect, self.config.job_timeout)

    def check(self) -> str:
        """Creates the table of marks, to find out whether tables can be created."""
        with self._session() as session:
            session.ensure_marks_table()
        return f"{self.config.project}.{self.config.dataset} can be written"

    def client(self) -> Client:
        from google.cloud.bigquery import Client as GoogleClient

        key, project, location = self.config.credentials, self.config.project, self.config.location
        if key is not None:
            made: GoogleClient = GoogleClient.from_service_account_json(  # type: ignore[no-untyped-call]
                str(key), project=project, location=location
            )
            return made
        return GoogleClient(project=project, location=location)
