"""Loads batches into a ClickHouse database. A repeated batch is recognised by its mark, or by its pieces.

Every batch opens its own client: nothing is held while there is nothing to write.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.destinations.clickhouse.config import ClickhouseConfig
from penstock.destinations.clickhouse.dialect import ClickhouseDialect, clickhouse_dialect
from penstock.destinations.clickhouse.error_translation import as_penstock_error
from penstock.destinations.clickhouse.session import ClickhouseSession, translate_errors
from penstock.destinations.contract import Capabilities
from penstock.destinations.sql.destination import SqlDestination
from penstock.destinations.sql.session import Session
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_SETTINGS = {
    # An insert must be complete when it returns, and must report what was wrong.
    "async_insert": "0",
    "insert_deduplicate": "1",
    # A time out of the column's range is an error, not the nearest one in range.
    "date_time_overflow_behavior": "throw",
}
_turns: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)
"""Routes of one process that share a database take turns: a merge reads rows and writes them back."""


class ClickhouseDestination(SqlDestination[ClickhouseConfig]):
    capabilities = Capabilities(transactions=False, marks=True)

    @cached_property
    def dialect(self) -> ClickhouseDialect:
        return clickhouse_dialect(self.config.database)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with _turns[self.config.url.get_secret_value(), self.config.database], closing(self._connect()) as client:
            self._make_database(client)
            yield ClickhouseSession(client, self.dialect)

    @contextmanager
    def read_only_session(self) -> Iterator[Session | None]:
        with closing(self._connect()) as client:
            yield ClickhouseSession(client, self.dialect) if self._has_database(client) else None

    def check(self) -> str:
        with self.session() as session:
            assert isinstance(session, ClickhouseSession)
            version, tables = session.server_info()
        return f"ClickHouse {version} can be written, {tables} tables in {self.config.database}"

    def _has_database(self, client: Client) -> bool:
        query = "SELECT count() FROM system.databases WHERE name = {name:String}"
        with translate_errors(refuses=False):
            return bool(client.query(query, parameters={"name": self.config.database}).result_rows[0][0])

    def _make_database(self, client: Client) -> None:
        if not self._has_database(client):
            with translate_errors(refuses=False):
                client.command(f"CREATE DATABASE IF NOT EXISTS {self.dialect.identifier(self.config.database)}")

    def _connect(self) -> Client:
        try:
            import clickhouse_connect
            from clickhouse_connect.driver.exceptions import ClickHouseError
        except ImportError as error:
            raise PenstockError(
                "PEN-DST-042", "the ClickHouse driver is not installed.", "pip install 'penstock[clickhouse]'"
            ) from error
        url = self.config.url.get_secret_value()
        scheme = url.partition("://")[0]
        try:
            if scheme == "chdb":
                return clickhouse_connect.get_client(dsn=url, settings=_SETTINGS)
            return clickhouse_connect.get_client(
                dsn=url,
                interface="https" if scheme in ("https", "clickhouses") else None,
                settings=_SETTINGS,
                connect_timeout=max(1, round(self.config.connect_timeout)),
                send_receive_timeout=max(1, round(self.config.answer_timeout)),
                client_name="penstock",
                autogenerate_session_id=False,
            )
        except (ClickHouseError, OSError) as error:
            raise as_penstock_error(error, refuses=False) from error
        except TypeError as error:
            # The driver takes the url's query for arguments of its own.
            raise PenstockError(
                "PEN-DST-045",
                f"the driver does not know an option of the url: {error}.",
                "User and password go before the host: clickhouse://user:password@host:port/database.",
            ) from error
