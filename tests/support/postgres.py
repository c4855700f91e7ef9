"""A real PostgreSQL for tests: a throw-away cluster from the system's own binaries, on a loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port, listens
from tests.support.waiting import eventually

ENSURE = Path(__file__).parents[2] / "scripts" / "ensure-postgres"
NO_SETTINGS: Mapping[str, str] = {}


class Server:
    """A cluster in a directory of its own. It can be killed and started again with its data."""

    def __init__(self, parent: Path | None = None) -> None:
        self._binaries = Path(subprocess.run([ENSURE], check=True, capture_output=True, text=True).stdout.strip())
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir=parent))
        self.port = free_port()
        # PostgreSQL refuses to run as root; the package brings a user for it.
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(self._directory, self._user)
        self._run("initdb", "-U", "penstock", "-A", "trust", "--no-sync", "-E", "UTF8")

    @property
    def url(self) -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/postgres"

    def start(self, fsync: bool = False, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self._directory}"
            f" -c fsync={'on' if fsync else 'off'}"
        )
        options += "".join(f" -c {name}={value}" for name, value in settings.items())
        self._run("pg_ctl", "-o", options, "-l", str(self._directory / "log"), "-w", "start")
        eventually(lambda: listens(self.port), "PostgreSQL listens")

    def kill(self) -> None:
        """As if the power were cut: nothing is finished, nothing is written on the way out."""
        self._run("pg_ctl", "-m", "immediate", "stop")

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self, command: str, *arguments: str) -> None:
        as_user = ["setpriv", f"--reuid={self._user}", "--regid=postgres", "--clear-groups"]
        prefix = as_user if os.geteuid() == 0 else []
        data = ["-D", str(self._directory / "data")]
        subprocess.run(
            [*prefix, str(self._binaries / command), *data, *arguments],
            check=True,
            capture_output=True,
            cwd=self._directory,
        )


@contextmanager
def postgres(
    fsync: bool = False, settings: Mapping[str, str] = NO_SETTINGS, parent: Path | None = None
) -> Iterator[str]:
    """Start a server and give its URL; it and its data, in a folder under ``parent``, are gone afterwards."""
    server = Server(parent)
    server.start(fsync, settings)
    try:
        yield server.url
    finally:
        server.kill()
        server.remove()
