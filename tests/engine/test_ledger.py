"""The ledger on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.destinations.contract import Batch
from penstock.engine.ledger import Ledger, sqlite_url
from penstock.engine.ledger.table_mappings import RouteBook
from penstock.errors import LedgerError
from tests.contract.ledger import LedgerContract
from tests.contract.postponed_items import PostponedContract
from tests.support.postgres import postgres


class TestSqliteLedger(LedgerContract, PostponedContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.url = sqlite_url(tmp_path / "ledger.db")

    def open(self) -> Ledger:
        return Ledger.open(self.url, "shop")

    def test_progress_is_noted_at_once_unless_somebody_else_writes(self, ledger: Ledger) -> None:
        book, batch = RouteBook(ledger, "export"), Batch(ledger.scope, "export", 1, {})
        assert book.note_progress_at_once(batch, {"a": "1", "b": "1"})
        with self.open().writing():
            assert not book.note_progress_at_once(batch, {"a": "2"})
        assert book.progress(batch) == {"a": "1", "b": "1"}
        book.note_progress(batch, {"a": "3", "b": ""})
        assert RouteBook(self.open(), "export").progress(batch) == {"a": "3"}

    def test_progress_of_very_many_sessions_is_noted_together(self, ledger: Ledger) -> None:
        book, batch = RouteBook(ledger, "export"), Batch(ledger.scope, "export", 1, {})
        many = {f"session {number}": "1" for number in range(10_000)}
        book.note_progress(batch, many)
        assert book.progress(batch) == many


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


class TestPostgresLedger(LedgerContract, PostponedContract):
    @pytest.fixture(autouse=True)
    def _place(self, server: str) -> None:
        self.url, self.pipeline = server, uuid.uuid4().hex

    def open(self) -> Ledger:
        return Ledger.open(self.url, self.pipeline)

    def test_pipelines_on_one_server_do_not_see_each_other(self, ledger: Ledger) -> None:
        other = Ledger.open(self.url, uuid.uuid4().hex)
        assert other.offsets("shop") == {}
        assert other.scope != ledger.scope

    def test_a_pipeline_whose_log_is_lost_is_told_how_to_begin_a_new_ledger(self, ledger: Ledger) -> None:
        ledger.check_log_identity({0: "lost"})
        ledger.open_route("shop", {0: 9})
        with pytest.raises(LedgerError) as caught:
            ledger.check_log_identity({0: "new"})
        (statement,) = re.findall(r"ALTER SCHEMA .*;", caught.value.fix)
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(statement.encode())
        begun = self.open()
        begun.check_log_identity({0: "new"})
        assert begun.offsets("shop") == {}


def test_a_ledger_out_of_reach_says_so_without_the_password() -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger.open("postgresql://me:hunter2@127.0.0.1:1/shop", "shop")
    assert "hunter2" not in str(caught.value)
    assert caught.value.code == "PEN-LGR-001"
