"""How a verb ends: the exit codes for scripts, and the error text for people."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec, TypeVar

import typer

from penstock.errors import DataDirError, PenstockError
from penstock.redaction import redacted, redacting_output

P = ParamSpec("P")
R = TypeVar("R")


class Exit(IntEnum):
    OK = 0
    PROBLEMS = 1
    """A check found something, or the verb could not do what it was asked."""
    USAGE = 2
    """The command line names something unknown: an option, a route, a component."""
    UNFINISHED = 3
    """Stopped before the work was done; what is left is in the log."""
    BUG = 70
    START = 78
    """The config is wrong or the pipeline cannot start; starting again would fail in the same way."""


UNKNOWN_NAME = frozenset(
    {
        "PEN-CFG-010",
        "PEN-CLI-001",
        "PEN-CLI-002",
        "PEN-ENG-005",
        "PEN-ENG-006",
        "PEN-ENG-007",
        "PEN-ENG-008",
        "PEN-ENG-011",
        "PEN-ENG-013",
        "PEN-ENG-014",
        "PEN-LOG-005",
    }
)
"""The codes of errors about an unknown route, step, partition or component."""

DEBUG = "PENSTOCK_DEBUG"


def report_errors(verb: Callable[P, R]) -> Callable[P, R]:
    """Wrap a verb so that its errors are printed for people: on stderr, with the fix, without a stack trace."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with redacting_output():
                return verb(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except PenstockError as error:
            code: Exit = exit_code(error)
            print_error(error)
        except OSError as error:
            code = Exit.PROBLEMS
            _write_stderr(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}\n")
        except Exception as error:
            if os.environ.get(DEBUG):
                raise
            code = Exit.BUG
            _write_stderr(
                f"{type(error).__name__}: {error}\n"
                f"  This is a bug of Penstock. Set {DEBUG}=1 and run again for the trace that a report needs.\n"
            )
        raise typer.Exit(code)

    return run


def print_error(error: PenstockError) -> None:
    """Print the problems in a config one per line, any other error in two lines: what happened, what to do."""
    from penstock.config.problems import ConfigError

    if isinstance(error, ConfigError):
        _write_stderr(f"{error}\n")
        return
    _write_stderr(f"{error.code}: {error.what}\n" + (f"  {error.fix}\n" if error.fix else ""))


def _write_stderr(text: str) -> None:
    sys.stderr.write(redacted(text))


def exit_code(error: PenstockError) -> Exit:
    from penstock.config.problems import ConfigError

    if isinstance(error, (ConfigError, DataDirError)):
        return Exit.START
    return Exit.USAGE if error.code in UNKNOWN_NAME else Exit.PROBLEMS
