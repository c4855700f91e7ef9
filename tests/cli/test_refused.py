"""A record that the database refuses, through the command line alone: by dead letter, and by stop.

One pipeline with a real PostgreSQL behind it, and a person beside it who looks, acknowledges, fixes and rewinds.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from penstock.cli._support.exit_codes import Exit
from penstock.testing.waiting import HANG, eventually
from tests.cli.processes import Terminal, running
from tests.support.database import Database

CONFIG = """\
name: shop
engine: {{restart_backoff: 100ms, drain: 1h}}
sources:
  web: {{type: file, path: ./orders.ndjson, poll: 100ms}}
routes:
  letters:
    from: web
    to: {{type: postgres, url: "{dsn}", database_schema: "{schema}", table: letters, adopt: [letters], every: 100ms}}
  strict:
    from: web
    on_error: stop
    to:
      {{type: postgres, url: "{dsn}", database_schema: "{schema}", table: strict, adopt: [strict], primary_key: [id],
        every: 100ms}}
  nobody: {{from: web, namespace: /nothing has this name/, to: {{type: stdout, every: 100ms}}}}
"""


def orders(folder: Path, first: int, last: int, bad: int | None = None) -> None:
    with (folder / "orders.ndjson").open("a") as file:
        for number in range(first, last + 1):
            file.write(json.dumps({"id": number, "amount": -1 if number == bad else number}) + "\n")


def ids(database: Database, table: str) -> list[int]:
    return [row[0] for row in database.ask(f"SELECT id FROM {table} ORDER BY id")]


def test_dead_letter_and_stop_as_an_operator_sees_them(tmp_path: Path, database: Database) -> None:
    database.ask(f"CREATE SCHEMA {database.schema}")
    database.ask("CREATE TABLE letters (id bigint, amount bigint CONSTRAINT positive CHECK (amount > 0))")
    database.ask("CREATE TABLE strict (id bigint PRIMARY KEY, amount bigint CONSTRAINT positive CHECK (amount > 0))")
    (tmp_path / "pipeline.yaml").write_text(CONFIG.format(dsn=database.dsn, schema=database.schema))
    orders(tmp_path, 1, 10, bad=7)
    shell = Terminal(tmp_path)

    with running(tmp_path) as run:
        # Ten records, the seventh is refused. By dead letter nine are delivered, and one is in failed.
        eventually(lambda: shell.counts("letters") == (10, 9, 0, 1, 0), "nine are loaded, one failed", every=0.5)
        assert ids(database, "letters") == [1, 2, 3, 4, 5, 6, 8, 9, 10]
        (failed,) = shell.penstock("failed", "list", "--json").stdout.splitlines()
        entry = json.loads(failed)
        assert (entry["route"], entry["record"]["offset"], entry["step"]) == ("letters", 6, "destination")
        assert 'violates check constraint "positive"' in entry["error"]

        # By stop six are delivered, and the route stands before the seventh and says why.
        eventually(lambda: shell.route("strict")["state"] == "halted", "the route has halted", every=0.5)
        assert shell.counts("strict") == (6, 6, 0, 0, 4)
        assert ids(database, "strict") == [1, 2, 3, 4, 5, 6]
        shown = shell.json("offset", "show", "strict")
        assert shown["offsets"][0]["committed"] == 6
        assert (shown["halted_at"]["offset"], shown["halted_at"]["code"]) == (6, "refused")
        assert 'violates check constraint "positive"' in shell.route("strict")["message"]
        assert "penstock offset ack strict 6 --partition 0" in run.said
        # It is not tried again and again, and nothing crashed.
        assert run.said.count("stopped before offset 6") == 1
        assert not re.search(r"route strict: .* Starting again", run.said)
        # A route whose filter matches nothing goes on all the same.
        assert shell.counts("nobody") == (10, 0, 10, 0, 0)

        # What a running engine could undo is refused.
        rewind = shell.penstock("offset", "rewind", "strict", "--to", "0", "--yes")
        assert rewind.returncode == Exit.PROBLEMS
        assert "cannot be moved back while the engine runs" in rewind.stderr

        # The acknowledged record is passed over, and the rest goes on by itself.
        done = shell.json("offset", "ack", "strict", "6", "--reason", "a test order")
        assert done["resumes"] is True
        eventually(lambda: shell.counts("strict") == (10, 9, 1, 0, 0), "the route has gone on", every=0.5)
        assert ids(database, "strict") == [1, 2, 3, 4, 5, 6, 8, 9, 10]
        assert shell.route("strict")["skipped_by"] == {"acknowledged": 1}
        assert shell.route("strict")["state"] == "running"

        # Another one; this time the database is fixed, and the route resumed.
        orders(tmp_path, 11, 20, bad=13)
        eventually(lambda: shell.route("strict")["state"] == "halted", "the route has halted again", every=0.5)
        assert ids(database, "strict")[-2:] == [11, 12]
        database.ask("ALTER TABLE strict DROP CONSTRAINT positive")
        assert shell.json("offset", "resume", "strict")["resumes"] is True
        eventually(lambda: shell.counts("strict") == (20, 19, 1, 0, 0), "the route has gone on", every=0.5)
        assert ids(database, "strict")[-8:] == list(range(13, 21))

        # A failed record is fixed and put through again; a second time is no second time.
        database.ask("ALTER TABLE letters DROP CONSTRAINT positive")
        assert shell.json("failed", "replay", "--route", "letters")["replayed"] == 2
        assert shell.json("failed", "replay", "--route", "letters")["replayed"] == 0
        eventually(lambda: ids(database, "letters") == list(range(1, 21)), "the failed ones are there", every=0.5)

        # A halted route does not hold up a stop, and is halted still when it is over.
        database.ask("ALTER TABLE strict ADD CONSTRAINT positive CHECK (amount > 0) NOT VALID")
        orders(tmp_path, 21, 21, bad=21)
        eventually(lambda: shell.route("strict")["state"] == "halted", "the route has halted", every=0.5)
        run.interrupt()
        assert run.process.wait(timeout=HANG) == 0
    assert shell.route("strict")["state"] == "halted"
    assert "halted" in shell.penstock("status").stdout

    # Replaying: the route reads again from an offset on, under new batch numbers, and its key keeps rows single.
    database.ask("ALTER TABLE strict DROP CONSTRAINT positive")
    database.ask("DELETE FROM strict WHERE id > 15")
    moved = shell.json("offset", "rewind", "strict", "--to", "6", "--yes", "--reason", "rows were deleted")
    assert [(each["from"], each["before"]) for each in moved["rewound"]] == [(6, 20)]
    once = shell.run_once()
    assert once.returncode == Exit.OK, once.stderr
    assert ids(database, "strict") == list(range(1, 22))
    acts = shell.json("offset", "show", "strict")["interventions"]
    assert [(act["act"], act["first"], act["reason"]) for act in acts] == [
        ("rewind", 6, "rows were deleted"),
        ("resume", 12, ""),
        ("ack", 6, "a test order"),
    ]
