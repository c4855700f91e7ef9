"""Who runs this command, for the ledger's log of interventions."""

from __future__ import annotations

import getpass
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.ledger import Operator


def current_operator(reason: str) -> Operator:
    """The user of this process, on this machine, with the reason that was given."""
    from penstock.engine.ledger import Operator

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        user = str(os.getuid())
    return Operator(f"{user}@{socket.gethostname()}", reason)
