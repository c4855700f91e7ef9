"""Keeps the named members of JSON objects; what is kept stays as it was."""

from __future__ import annotations

from penstock.json.members import keep_members
from penstock.steps.omit.step import Omit


class Pick(Omit):
    """A record that has none of the fields becomes ``{}``; it is not skipped."""

    edit = staticmethod(keep_members)
