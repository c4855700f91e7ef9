"""Asks before something that cannot be undone. The question goes to stderr: stdout is for the output."""

from __future__ import annotations

import sys

import typer

from penstock.errors import PenstockError


def require_yes(question: str) -> None:
    """Go on only if the person, or the pipe, says yes; anything else ends the verb.

    Raises ``PenstockError`` if there is nobody to ask.
    """
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        sys.stderr.write("\n")
        raise PenstockError(
            "PEN-CLI-005",
            "nobody is there to answer: the input has ended. Nothing was changed.",
            "Answer at a terminal, or pass --yes.",
        )
    if answer.strip().lower() not in ("y", "yes"):
        raise typer.Abort
