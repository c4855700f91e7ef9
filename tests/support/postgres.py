"""A real PostgreSQL for tests: a throw-away cluster from the system's own binaries, on a loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port, listens
from tests.support.waiting import eventually

ENSURE = Path(__file__).parents[2] / "scripts" / "ensure-postgres"


@contextmanager
def postgres() -> Iterator[str]:
    """Start a server and give its URL; it and its data are gone afterwards."""
    binaries = Path(subprocess.run([ENSURE], check=True, capture_output=True, text=True).stdout.strip())
    directory = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
    port = free_port()
    # PostgreSQL refuses to run as root; the package brings a user for it.
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:
        shutil.chown(directory, user)

    def run(*command: str) -> None:
        prefix = ["setpriv", f"--reuid={user}", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        subprocess.run([*prefix, *command], check=True, capture_output=True, cwd=directory)

    data = str(directory / "data")
    run(str(binaries / "initdb"), "-D", data, "-U", "penstock", "-A", "trust", "--no-sync", "-E", "UTF8")
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={directory} -c fsync=off"
    run(str(binaries / "pg_ctl"), "-D", data, "-o", options, "-l", str(directory / "log"), "-w", "start")
    try:
        eventually(lambda: listens(port), "PostgreSQL listens")
        yield f"postgresql://penstock@127.0.0.1:{port}/postgres"
    finally:
        run(str(binaries / "pg_ctl"), "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(directory, ignore_errors=True)
