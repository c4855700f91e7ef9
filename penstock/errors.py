"""Errors for people: a stable code, what happened, what to do next.

Anything that a user or an operator can cause is a ``PenstockError``. The command line prints its three parts and exits
without a stack trace; everything else is a bug of ours and keeps its trace.
"""

from __future__ import annotations

from penstock.redaction import redacted


class PenstockError(Exception):
    """A problem that a person can act on.

    ``code`` never changes once released (``PEN-LOG-003``), ``what`` says what happened in one sentence, ``fix`` says
    what to do about it. What it says may come from a driver or a server: secrets are taken out of it.
    """

    def __init__(self, code: str, what: str, fix: str = "") -> None:
        self.code = code
        self.what = redacted(what)
        self.fix = redacted(fix)
        super().__init__(code, self.what, self.fix)

    def __str__(self) -> str:
        """Everything in one line. Messages of a database or an operating system may lack the final full stop."""
        if not self.fix:
            return f"{self.code}: {self.what}"
        stop = "" if self.what.rstrip().endswith((".", "!", "?", ":")) else "."
        return f"{self.code}: {self.what.rstrip()}{stop} {self.fix}"


class DataDirError(PenstockError):
    """The folder for everything that Penstock keeps cannot be used. Starting again would find the same."""


class LogError(PenstockError):
    """The log cannot be opened, read or written as asked."""


class LogFull(LogError):
    """The disk has no room for an append. Nothing of it was written; the same append may work later."""


class AppendTooLarge(LogError):
    """An append is more than the log takes at once. Nothing of it was written, and the log is as it was."""


class LedgerError(PenstockError):
    """The ledger refuses: the accounting would not add up, or another process is in the way."""


class LedgerUnavailable(LedgerError):
    """The ledger's database cannot be reached now."""


class RouteError(PenstockError):
    """A route cannot start or go on."""


class ContradictionError(PenstockError):
    """The destination contradicts the ledger and the log. Nothing was written; a person must decide which of them is
    right."""


class TargetWentBackError(PenstockError):
    """The destination has lost what it had, because an older copy of it was put back. Nothing was written; the route
    has to start again, where it asks how far the destination is."""


class SourceUnavailable(PenstockError):
    """What a source reads from cannot be reached now. The same may work later."""


class TransientError(PenstockError):
    """The destination cannot take the batch now (unavailable, locked, overloaded). The same write is tried again."""


class TableRefusedError(PenstockError):
    """A table at the destination takes no row of this batch, whatever the row (it is a view or a type, or lacks a
    column that nobody can add). Retrying does not help: somebody must fix the table."""


class TakesLong(TransientError):
    """The destination takes the rows, but to find out which of them takes longer than it was given."""


class RefusedError(PenstockError):
    """The destination will never take this batch as it is (constraint, bad value). Retrying does not help."""


class RowTooLargeError(RefusedError):
    """The destination will not take a row because all its values together are too large for it."""
