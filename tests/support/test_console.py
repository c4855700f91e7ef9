"""What the comparison of documents with programs lets pass, and what it does not."""

from __future__ import annotations

import pytest

from tests.support.console import Typed, console_blocks, ends_in_the_form, shows


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("", "", True),
        ("", "a\n", False),
        ("a", "a\n", True),
        ("a", "a\nb\n", False),
        ("a\n...", "a\nb\n", True),
        ("a\n...", "a\n", True),
        ("...\nb", "a\nb\n", True),
        ("a\n...\nc", "a\nb\nb\nc\n", True),
        ("a\n...\nc", "a\nb\n", False),
        ("in 3.817 s, pid 7", "in 12 s, pid 31\n", True),
        ("17 loaded", "16 loaded", False),
        ("2026-11-15T09:37:32.612Z  x", "2027-01-01T00:00:00.000Z         x", True),
        ("2026-11-15 09:37:32,612 INFO x", "INFO x", False),
        ("in  rate  to go\n────\n20   1/s      ✓", "in  to go\n──────\n20      ✓", True),
        ("in  to go\n20      ✓", "in  to go\n20      3", False),
        ("│ 12.50 │", "│  12.5 │", False),
    ],
)
def test_times_and_widths_may_differ_and_nothing_else(shown: str, printed: str, same: bool) -> None:
    assert shows(shown, printed) is same


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("started\n│ = loaded │ 2,526 │\nmore\nin 3 s. Stopped\nclean: yes.\nFine.\n", True),
        ("│ = loaded │ 2,526 │\nStopped clean: yes.\nFine.\nNot quite.\n", False),
        ("│ = skipped │ 2,526 │\nStopped clean: yes.\nFine.\n", False),
    ],
)
def test_the_form_is_all_but_numbers_and_line_ends(printed: str, same: bool) -> None:
    assert ends_in_the_form("│ = loaded  │ 166,968 │\n...\nStopped clean: yes.\nFine.", printed) is same


def test_commands_go_on_over_lines_and_have_what_is_shown_below_them() -> None:
    text = "```console\n$ a 'b\n  c' \\\n  d\nshown\n\nmore\n$ e   # leave it running\n```\n```text\n$ no\n```\n"
    first, second = console_blocks(text)
    assert first == Typed("a 'b\n  c' \\\n  d", "shown\n\nmore")
    assert (second.shown, first.keeps_running, second.keeps_running) == ("", False, True)
