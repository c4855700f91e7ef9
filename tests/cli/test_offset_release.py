"""``penstock offset release``: what is asked for, what is refused, what is on record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.cli._support.exit_codes import Exit
from penstock.engine.layout import Layout
from penstock.engine.ledger import ReleaseRequest, Settlement
from penstock.engine.stateful.state_recovery import give_up_state
from penstock.errors import ContradictionError
from tests.cli.projects import Project
from tests.engine.projects import append

CONFIG = """\
name: shop
sources: {web: {type: file, path: ./web.ndjson}}
routes:
  together:
    from: web
    steps: [{gather: {key: k, until: done, at_most: 1h}}]
    to: {type: "null"}
  plain: {from: web, to: {type: "null"}}
"""


@pytest.fixture
def waits(tmp_path: Path) -> Project:
    """The route has read four of five records, and three of them wait."""
    project = Project(tmp_path)
    project.config.write_text(CONFIG)
    opened = project.open()
    partition = append(opened, "web", [b'{"k": 1}'] * 5)
    opened.ledger.open_route("together", {partition: 0})
    batch = opened.ledger.begin("together", {partition: (0, 4)})
    assert batch is not None
    opened.ledger.commit(batch, Settlement(4, 1, waiting=3, holds={partition: 1}))
    opened.ledger.close()
    return project


def asked(project: Project) -> list[ReleaseRequest]:
    opened = project.open()
    try:
        return opened.ledger.release_requests("together")
    finally:
        opened.ledger.close()


def test_it_is_asked_for_up_to_what_is_in_the_log_now(waits: Project) -> None:
    done = waits.penstock("offset", "release", "together", "--reason", "the shop closes")
    assert (done.code, done.err) == (Exit.OK, "")
    assert done.out == (
        "together: 3 records that waited, and what has to wait among 1 unread record, go on at the next start\n"
    )
    (request,) = asked(waits)
    opened = waits.open()
    assert request.up_to == opened.log.reader(0).stamp_at(4)
    append(opened, "web", [b'{"k": 1}'])
    assert opened.log.reader(0).stamp_at(5) > request.up_to
    (act,) = json.loads(waits.penstock("offset", "show", "together", "--json").out)["interventions"]
    assert (act["act"], act["reason"], act["partition"], act["first"], act["last"]) == (
        "release", "the shop closes", 0, 1, 4,
    )  # fmt: skip


def test_a_running_engine_does_it_now(waits: Project) -> None:
    lock = Layout(waits.folder / "data").run / "engine.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(str(os.getppid()))
    done = json.loads(waits.penstock("offset", "release", "together", "--json").out)
    (request,) = asked(waits)
    assert done == {
        "released": True, "route": "together", "up_to": request.up_to, "waiting": 3, "unread": 1, "now": True,
    }  # fmt: skip


def test_it_can_be_asked_for_again(waits: Project) -> None:
    waits.penstock("offset", "release", "together")
    append(waits.open(), "web", [b'{"k": 1}'])
    waits.penstock("offset", "release", "together")
    first, second = asked(waits)
    assert first.up_to < second.up_to


def test_where_nothing_waits_there_is_nothing_to_do(waits: Project) -> None:
    opened = waits.open()
    batch = opened.ledger.begin("together", {0: (4, 5)})
    assert batch is not None
    opened.ledger.commit(batch, Settlement(1, 4, waiting=-3, holds={0: None}))
    done = waits.penstock("offset", "release", "together")
    assert (done.code, done.out) == (Exit.OK, "")
    assert done.err == "nothing waits, and the route has read all that is there: there is nothing to do\n"
    assert json.loads(waits.penstock("offset", "release", "together", "--json").out) == {
        "route": "together", "released": False,
    }  # fmt: skip
    assert asked(waits) == []
    assert opened.ledger.interventions("together") == []


@pytest.mark.parametrize(("route", "code"), [("plain", "PEN-ENG-076"), ("missing", "PEN-ENG-005")])
def test_a_route_in_which_nothing_can_wait_is_refused(waits: Project, route: str, code: str) -> None:
    done = waits.penstock("offset", "release", route)
    assert done.code != Exit.OK
    assert code in done.err
    assert f"'{route}'" in done.err


@pytest.mark.parametrize("to", ["2", "1h"])
def test_a_rewind_goes_back_to_what_waits(waits: Project, to: str) -> None:
    """It is forgotten with the state of the step: nothing else would bring it back."""
    done = waits.penstock("offset", "rewind", "together", "--to", to, "--yes")
    assert done.code == Exit.OK
    first = 0 if to == "1h" else 1
    assert f"reads partition 0 (web) again from {first} to 3" in done.err
    opened = waits.open()
    assert opened.ledger.offsets("together")[0].committed == first
    assert opened.ledger.totals("together").waiting == 0
    opened.ledger.close()


def test_what_waits_of_a_source_that_is_gone_is_not_given_up(waits: Project) -> None:
    waits.config.write_text(
        CONFIG.replace("sources: {", "sources: {app: {type: file, path: ./a}, ").replace(
            "    from: web\n", "    from: app\n"
        )
    )
    append(waits.open(), "app", [b'{"k": 1}'] * 3)
    opened = waits.open()
    opened.ledger.open_route("together", {1: 0})
    batch = opened.ledger.begin("together", {1: (0, 3)})
    assert batch is not None
    opened.ledger.commit(batch, Settlement(3, 3))
    opened.ledger.close()
    done = waits.penstock("offset", "rewind", "together", "--to", "0", "--partition", "1", "--yes")
    assert (done.code, "PEN-RTE-027" in done.err, "'web'" in done.err) == (Exit.PROBLEMS, True, True)
    opened = waits.open()
    with pytest.raises(ContradictionError, match="PEN-RTE-027"):
        give_up_state(opened.ledger, opened.log, opened.plan("together"))
    assert opened.ledger.totals("together").waiting == 3


def test_what_a_step_that_is_gone_has_held_cannot_be_adopted(waits: Project) -> None:
    """A lost ledger, and the step taken out: what was delivered of the log is not all that was read."""
    opened = waits.open()
    checkpoint = opened.layout.checkpoint("together", opened.ledger.scope)
    opened.ledger.close()
    (checkpoint / "state" / "0").mkdir(parents=True)
    (waits.folder / "data" / "ledger.db").unlink()
    waits.config.write_text(CONFIG.replace("steps: [{gather: {key: k, until: done, at_most: 1h}}]", "steps: []"))
    done = waits.penstock("offset", "adopt", "together")
    assert (done.code, "PEN-ENG-078" in done.err) == (Exit.PROBLEMS, True)


def test_a_route_that_is_dropped_leaves_no_request_behind(waits: Project) -> None:
    waits.penstock("offset", "release", "together")
    waits.config.write_text(CONFIG.replace("together:", "later:"))
    assert waits.penstock("offset", "drop", "together", "--yes").code == Exit.OK
    assert asked(waits) == []
