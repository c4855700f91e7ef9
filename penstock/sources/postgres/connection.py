"""Connections to the server, and what its errors mean to us: wait and retry, or tell a person.

Every session has the same settings (UTC, ISO dates, hex bytes, UTF-8, schema-qualified names), so a value has one
text whether it was copied or comes as a change. The URL may hold a password: no message repeats it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import psycopg
from psycopg import conninfo

from penstock.backoff import Backoff, Patience
from penstock.errors import PenstockError, SourceUnavailable
from penstock.sources.postgres.config import PostgresConfig

Connection = psycopg.Connection[tuple[object, ...]]

LONGEST_WAIT_SECONDS = 15.0

_SESSION = {
    "bytea_output": "hex",
    "datestyle": "ISO",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "intervalstyle": "postgres",
    "lock_timeout": "0",
    # Rows hidden by a policy must be an error, not missing.
    "row_security": "off",
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "timezone": "UTC",
}
_REFUSALS = ("authentication failed", "no pg_hba.conf entry", "does not exist", "no password supplied", "not permitted")

_log = logging.getLogger("penstock.postgres")


TRIED_AGAIN = "It is tried again; if it goes on, look at PostgreSQL's own log."


class ServerUnavailable(SourceUnavailable):
    """The server cannot be reached, or ended the connection. The same may work later."""


def connect(config: PostgresConfig, replication: bool = False) -> Connection:
    """Open a connection with our settings; ``replication``: one for replication commands."""
    try:
        given = conninfo.conninfo_to_dict(config.url.get_secret_value())
    except psycopg.ProgrammingError:
        raise PenstockError(
            "PEN-PGS-014",
            "the source's `url` cannot be read.",
            "Write postgresql://user:password@host:5432/database; percent-encode what is special in the password.",
        ) from None
    settings = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    options = {
        "application_name": "penstock",
        # Notices a server that vanished silently.
        "keepalives_idle": 30,
        "tcp_user_timeout": 60_000,
        **given,
        "options": f"{given.get('options') or ''} {settings}".strip(),
        "connect_timeout": max(2, round(config.connect_timeout)),
        "client_encoding": "utf8",
    }
    if replication:
        options["replication"] = "database"
    try:
        return psycopg.connect(**options, autocommit=True)  # type: ignore[arg-type]
    except psycopg.Error as error:
        raise translated_error(error) from error


def translated_error(error: psycopg.Error) -> PenstockError:
    """The error as one of ours: ``ServerUnavailable`` if waiting may help."""
    text = " ".join(str(error).split())
    unreachable = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if unreachable and error.sqlstate is None and any(refusal in text for refusal in _REFUSALS):
        return PenstockError("PEN-PGS-011", f"PostgreSQL does not let us in: {text}.", "Check `url` and pg_hba.conf.")
    if unreachable and error.sqlstate != psycopg.errors.ConfigurationLimitExceeded.sqlstate:
        fix = "It is tried again; if it lasts, see that the server runs and can be reached from here."
        return ServerUnavailable("PEN-PGS-015", f"PostgreSQL cannot be used now: {text}.", fix)
    return PenstockError(
        "PEN-PGS-010", f"PostgreSQL refused: {text}.", "Fix the cause on the server, then restart the pipeline."
    )


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the driver's errors raised inside the block into ours."""
    try:
        yield
    except psycopg.Error as error:
        raise translated_error(error) from error


class Waits:
    """Waits between retries, longer each time."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._backoff = Backoff(cap=LONGEST_WAIT_SECONDS)
        self._patience = patience or Patience()

    def wait(self, stopping: Event, why: object) -> None:
        """Log why, and wait; ends at once if we are told to stop."""
        seconds = self._patience.at_most(self._backoff.next())
        _log.warning("waiting %.1f s: %s", seconds, why)
        stopping.wait(seconds)

    def is_over(self) -> bool:
        return self._patience.is_over()

    def reset(self) -> None:
        self._backoff.reset()
        self._patience.reset()
