"""What is wrong on the server's side is said at the start, with what to do about it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from penstock.engine.operate.doctor import Verdict, run_checks
from penstock.errors import PenstockError
from penstock.sources.postgres.config import PostgresConfig
from penstock.testing.waiting import eventually
from tests.sources.postgres.rig import Rig
from tests.support.postgres import LOGICAL, postgres

ITEMS = "CREATE TABLE items (id int PRIMARY KEY)"


def refused(rig: Rig, **options: object) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        rig.source(**options).run(Event(), once=True)
    return caught.value


def test_wal_level(postgres_url: str, tmp_path: Path) -> None:
    error = refused(Rig(postgres_url, tmp_path))
    assert error.code == "PEN-PGS-001"
    assert "ALTER SYSTEM SET wal_level = logical" in error.fix


def test_no_right_to_replicate(rig: Rig) -> None:
    rig.ask(
        ITEMS,
        "CREATE ROLE plain LOGIN",
        "GRANT SELECT ON items TO plain",
        "CREATE PUBLICATION penstock FOR TABLE items",
    )
    try:
        error = refused(Rig(rig.url.replace("penstock@", "plain@"), rig.folder))
    finally:
        rig.ask("DROP OWNED BY plain", "DROP ROLE plain")
    assert error.code == "PEN-PGS-003"
    assert 'ALTER ROLE "plain" REPLICATION' in error.fix


def test_no_right_to_read_or_to_publish(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.ask(ITEMS, "CREATE ROLE follower LOGIN REPLICATION")
    follower = Rig(rig.url.replace("penstock@", "follower@"), rig.folder)
    try:
        hidden = refused(follower)
        rig.ask("GRANT SELECT ON items TO follower")
        unpublished = refused(follower)
        rig.ask("CREATE PUBLICATION penstock FOR TABLE items", "INSERT INTO items VALUES (1)")
        assert len(follower.catch_up()) == 2
        rig.ask("CREATE TABLE more (id int PRIMARY KEY)", "GRANT SELECT ON more TO follower")
        rig.ask("INSERT INTO items VALUES (2)")
        assert len(follower.catch_up()) == 1
    finally:
        rig.ask("DROP OWNED BY follower", "DROP ROLE follower")
    assert (hidden.code, "public.items" in hidden.what, "GRANT SELECT" in hidden.fix) == ("PEN-PGS-008", True, True)
    assert unpublished.code == "PEN-PGS-009"
    assert 'ALTER PUBLICATION "penstock" ADD TABLE "public"."more"' in caplog.text


def test_a_table_without_identity_is_named_before_its_updates_could_fail(rig: Rig) -> None:
    rig.ask(ITEMS, "CREATE TABLE bare (id int)", "INSERT INTO bare VALUES (1)")
    error = refused(rig)
    assert error.code == "PEN-PGS-004"
    assert "public.bare" in error.what
    assert 'ALTER TABLE "public"."bare" REPLICA IDENTITY FULL' in error.fix
    rig.ask("UPDATE bare SET id = 2")
    rig.catch_up(tables=["public.*", "!public.bare"])


def test_no_such_tables(rig: Rig) -> None:
    error = refused(rig, tables=["publik.*"])
    assert error.code == "PEN-PGS-017"
    assert "publik.*" in error.what


def test_a_publication_that_leaves_changes_out(rig: Rig) -> None:
    rig.ask(ITEMS, "CREATE PUBLICATION penstock FOR TABLE items WITH (publish = 'insert')")
    error = refused(rig)
    assert error.code == "PEN-PGS-009"
    assert "SET (publish = 'insert, update, delete, truncate')" in error.fix


def test_a_slot_in_use_by_another_pipeline(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.postgres.stream.slot.holder_timeout", lambda _: 0.5)
    rig.ask(ITEMS)
    stopping, source = Event(), rig.source()
    first = threading.Thread(target=source.run, args=(stopping,))
    first.start()
    try:
        eventually(
            lambda: rig.ask("SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = 'penstock'"), "the slot"
        )
        eventually(lambda: rig.log_end() == 2, "the copy")
        error = refused(Rig(rig.url, tmp_path / "other"), copy=False)
    finally:
        stopping.set()
        first.join()
    assert error.code == "PEN-PGS-005"
    assert "penstock" in error.what


def test_a_slot_of_another_kind(rig: Rig) -> None:
    rig.ask(ITEMS, "SELECT pg_create_logical_replication_slot('penstock', 'test_decoding')")
    error = refused(rig)
    assert error.code == "PEN-PGS-007"
    assert "test_decoding" in error.what


def test_a_slot_that_is_gone_is_not_silently_made_again(rig: Rig) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1)")
    rig.catch_up()
    rig.ask("SELECT pg_drop_replication_slot('penstock')", "INSERT INTO items VALUES (2)")
    error = refused(rig)
    assert error.code == "PEN-PGS-006"
    assert "to a new name" in error.fix
    rig.catch_up(slot="penstock_2")
    rig.ask("INSERT INTO items VALUES (3)")
    rig.catch_up(slot="penstock_2")
    assert rig.is_mirrored("public.items")
    rig.ask("SELECT pg_drop_replication_slot('penstock_2')")


def test_a_publication_that_was_gone_for_a_while(rig: Rig) -> None:
    """The server cannot say what happened meanwhile, so tables are copied anew and followed from there."""
    rig.ask(ITEMS)
    rig.catch_up()
    rig.ask("DROP PUBLICATION penstock", "INSERT INTO items VALUES (1)")
    rig.catch_up()
    assert rig.is_mirrored("public.items")
    rig.ask("INSERT INTO items VALUES (2)")
    rig.catch_up()
    assert rig.is_mirrored("public.items")


def test_a_publication_that_was_gone_for_a_while_is_an_error_without_copies(rig: Rig) -> None:
    rig.ask(ITEMS)
    rig.catch_up(copy=False)
    rig.ask("DROP PUBLICATION penstock", "INSERT INTO items VALUES (1)")
    error = refused(rig, copy=False)
    assert error.code == "PEN-PGS-006"
    assert "publication" in error.what


class TestALostSlot:
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[Rig]:
        small = {"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
        with postgres(settings={**LOGICAL, **small}) as url:
            yield Rig(url, tmp_path)

    def test_is_said_and_can_be_started_anew(self, rig: Rig) -> None:
        rig.ask(ITEMS, "CREATE SCHEMA other", "CREATE TABLE other.noise (t text)")
        rig.catch_up()
        for _ in range(3):
            rig.ask(
                "INSERT INTO other.noise SELECT repeat('x', 1500) FROM generate_series(1, 15000)",
                "SELECT pg_switch_wal()",
                "CHECKPOINT",
            )
        error = refused(rig)
        assert error.code == "PEN-PGS-006"
        assert "pg_drop_replication_slot('penstock')" in error.fix
        rig.ask("SELECT pg_drop_replication_slot('penstock')", "INSERT INTO items VALUES (1)")
        rig.catch_up(slot="anew")
        assert rig.is_mirrored("public.items")


def test_a_server_that_was_put_back_to_an_earlier_state(rig: Rig) -> None:
    rig.ask(ITEMS)
    rig.catch_up()
    rig.ask("INSERT INTO items VALUES (1)")
    rig.catch_up()
    positions = rig.folder / "state" / "positions.json"
    end = str(2**60)
    taken = positions.read_text()
    positions.write_text(re.sub(r'"commit": \d+', f'"commit": {end}', taken))
    assert refused(rig).code == "PEN-PGS-013"
    positions.write_text(re.sub(r'"system": "\d+"', '"system": "1"', taken))
    assert refused(rig).code == "PEN-PGS-013"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://nobody@127.0.0.1:{port}/postgres", "PEN-PGS-011"),
        ("postgresql://penstock@127.0.0.1:{port}/nowhere", "PEN-PGS-011"),
        ("postgresql://penstock:hunter2@127.0.0.1:{port}/postgres?wrong=hunter2", "PEN-PGS-014"),
    ],
)
def test_an_address_that_cannot_work(logical_url: str, tmp_path: Path, url: str, code: str) -> None:
    port = logical_url.rsplit(":", 1)[1].split("/")[0]
    error = refused(Rig(url.format(port=port), tmp_path))
    assert error.code == code
    assert "hunter2" not in str(error)


def test_a_password_is_in_no_log_line_and_no_repr(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.ask(ITEMS)
    secret = Rig(rig.url.replace("penstock@", "penstock:hunter2@"), rig.folder)
    secret.catch_up()
    secret.ask("DROP TABLE items", "SELECT pg_drop_replication_slot('penstock')")
    refused(secret)
    config = PostgresConfig.model_validate(secret.options())
    assert "hunter2" not in caplog.text + repr(config) + config.model_dump_json()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"url": "hunter2"}, "not a PostgreSQL address"),
        ({"tables": []}, "at least 1"),
        ({"tables": ["orders"]}, "not schema.table"),
        ({"tables": "public."}, "not schema.table"),
        ({"slot": "Mine"}, "not the name of a slot"),
        ({"workers": 0}, "greater than or equal to 1"),
    ],
)
def test_a_bad_option_is_said(options: dict[str, object], word: str) -> None:
    given = {"url": "postgresql://h/d", "tables": "public.*", **options}
    with pytest.raises(ValueError, match=word) as caught:
        PostgresConfig.model_validate(given)
    assert "hunter2" not in "".join(error["msg"] for error in caught.value.errors())  # type: ignore[attr-defined]


def test_the_doctor_looks_and_touches_nothing(rig: Rig) -> None:
    rig.ask(ITEMS, "CREATE TABLE bare (id int)")
    config = rig.folder / "pipeline.yaml"
    source = f"{{type: postgres, url: '{rig.url}', tables: ['public.*', '!public.bare']}}"
    config.write_text(f"name: shop\nsources:\n  pg: {source}\n")
    assert _doctors_word(config) == (Verdict.OK, "no slot 'penstock' yet")
    assert rig.ask("SELECT 1 FROM pg_publication UNION SELECT 1 FROM pg_replication_slots") == []
    rig.catch_up(tables=["public.items"])
    assert _doctors_word(config) == (Verdict.OK, "1 table; the slot 'penstock' keeps ")
    config.write_text(config.read_text().replace(", '!public.bare'", ""))
    assert _doctors_word(config) == (Verdict.FAIL, "PEN-PGS-004")


def _doctors_word(config: Path) -> tuple[Verdict, str]:
    (finding,) = [finding for finding in run_checks(config) if finding.subject == "source pg"]
    for word in ("no slot 'penstock' yet", "1 table; the slot 'penstock' keeps ", "PEN-PGS-004"):
        if word in finding.found:
            return finding.verdict, word
    return finding.verdict, finding.found


def test_a_slot_that_another_pipeline_made_is_not_taken(rig: Rig, tmp_path: Path) -> None:
    rig.ask(ITEMS)
    rig.catch_up()
    error = refused(Rig(rig.url, tmp_path / "other"))
    assert error.code == "PEN-PGS-020"
    assert "Set another `slot` name" in error.fix
    rig.ask("INSERT INTO items VALUES (1)")
    assert len(rig.catch_up()) == 1


def test_a_slot_that_somebody_else_has_read_from_is_lost_and_not_gone_on_with(rig: Rig, tmp_path: Path) -> None:
    rig.ask(ITEMS)
    rig.catch_up()
    rig.ask("INSERT INTO items VALUES (1)")
    Rig(rig.url, tmp_path / "other").catch_up(copy=False)
    rig.ask("INSERT INTO items VALUES (2)")
    error = refused(rig)
    assert error.code == "PEN-PGS-006"
    assert "somebody else has read it" in error.what
    rig.catch_up(slot="another")
    assert rig.is_mirrored("public.items")
    rig.ask("SELECT pg_drop_replication_slot('another')")


def test_a_slot_is_known_again_after_a_kill_right_after_it_was_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.ask(ITEMS, "INSERT INTO items VALUES (1)")
    rig.run_until_killed("postgres.slot.made", monkeypatch)
    rig.catch_up()
    assert rig.is_mirrored("public.items")


def test_a_slot_that_is_lost_is_seen_without_a_run(rig: Rig) -> None:
    rig.ask(ITEMS)
    rig.catch_up()
    assert "keeps" in rig.source().check()
    rig.ask("SELECT pg_drop_replication_slot('penstock')")
    with pytest.raises(PenstockError) as caught:
        rig.source().check()
    assert caught.value.code == "PEN-PGS-006"
    rig.ask("ALTER PUBLICATION penstock SET (publish = 'insert')")
    with pytest.raises(PenstockError) as caught:
        rig.source().check()
    assert caught.value.code == "PEN-PGS-009"
