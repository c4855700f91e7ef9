"""The local log keeps the contract of every log."""

from __future__ import annotations

from pathlib import Path

from penstock.log.local_log import LocalLog
from tests.contract.log import LogContract, config


class TestLocalLog(LogContract):
    def open(self, directory: Path, **options: object) -> LocalLog:
        return LocalLog(directory, config(**options))
