"""A real PostgreSQL for tests: a throw-away cluster from the system's own binaries, on a loopback port."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.testing.waiting import HANG, eventually
from tests.support.ports import free_port, listens

ENSURE = Path(__file__).parents[2] / "scripts" / "ensure-postgres"
NO_SETTINGS: Mapping[str, str] = {}
LOGICAL: Mapping[str, str] = {"wal_level": "logical", "max_replication_slots": "60", "max_wal_senders": "60"}
"""Settings of a server whose changes can be followed."""


class Server:
    """A cluster in a directory of its own. It can be killed and started again with its data."""

    def __init__(self, parent: Path | None = None) -> None:
        self._binaries = _binaries()
        self._directory = _new_directory(parent)
        self.port = free_port()
        subprocess.run(["cp", "-a", _new_cluster() / "data", self._directory / "data"], check=True)

    def program(self, name: str) -> Path:
        """One of PostgreSQL's own programs, of this server's version."""
        return self._binaries / name

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

    def with_tls(self) -> dict[str, str]:
        """Settings for encrypted connections, with a certificate that the server signed itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
        begin = datetime.now(UTC) - timedelta(days=1)
        certificate = x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), begin, begin + timedelta(days=9)
        ).sign(key, hashes.SHA256())
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        files = {
            "ssl_cert_file": certificate.public_bytes(pem),
            "ssl_key_file": key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain),
        }
        for setting, content in files.items():
            path = self._directory / setting
            path.write_bytes(content)
            path.chmod(0o600)
            if os.geteuid() == 0:
                shutil.chown(path, _USER)
        return {"ssl": "on", **{setting: str(self._directory / setting) for setting in files}}

    def stop(self) -> None:
        """In good order: clients are sent away, everything is on disk."""
        self._run("pg_ctl", "-m", "fast", "stop")

    def kill(self) -> None:
        """As if the power were cut: nothing is finished, nothing is written on the way out."""
        self._run("pg_ctl", "-m", "immediate", "stop")

    def shoot(self) -> None:
        """``kill -9`` of the server's first process; the others notice and end by themselves."""
        first, *others = self.processes()
        first.kill()
        psutil.wait_procs(others, timeout=HANG)

    def processes(self) -> list[psutil.Process]:
        """All processes of a server that runs; the first one has made the others."""
        pid = int((self._directory / "data" / "postmaster.pid").read_text().splitlines()[0])
        return [psutil.Process(pid), *psutil.Process(pid).children()]

    def copy_files(self) -> Path:
        """Copy the files of a stopped server; returns the copy."""
        copy = Path(tempfile.mkdtemp(prefix="copy-", dir=self._directory)) / "data"
        subprocess.run(["cp", "-a", self._directory / "data", copy], check=True)
        return copy

    def put_back(self, copy: Path) -> None:
        """Replace the files of a stopped server with a copy that was made before."""
        shutil.rmtree(self._directory / "data")
        copy.rename(self._directory / "data")

    def recover_at_start(self) -> None:
        """Let a stopped server begin a new timeline at the next start, as after a restore to a point in time."""
        signal_file = self._directory / "data" / "recovery.signal"
        signal_file.touch()
        if os.geteuid() == 0:
            shutil.chown(signal_file, _USER)

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self, command: str, *arguments: str) -> None:
        _run(self._directory, command, *arguments)


# PostgreSQL refuses to run as root; the package brings a user for it.
_USER = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@cache
def _binaries() -> Path:
    return Path(subprocess.run([ENSURE], check=True, capture_output=True, text=True).stdout.strip())


@cache
def _new_cluster() -> Path:
    """A folder with a cluster that nobody has used: making one takes ten times as long as copying it."""
    folder = _new_directory(None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _run(folder, "initdb", "-U", "penstock", "-A", "trust", "--no-sync", "-E", "UTF8")
    return folder


def _new_directory(parent: Path | None) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir=parent))
    if os.geteuid() == 0:
        shutil.chown(directory, _USER)
    return directory


def _run(directory: Path, command: str, *arguments: str) -> None:
    as_user = ["setpriv", f"--reuid={_USER}", "--regid=postgres", "--clear-groups"]
    prefix = as_user if os.geteuid() == 0 else []
    words = [*prefix, str(_binaries() / command), "-D", str(directory / "data"), *arguments]
    subprocess.run(words, check=True, capture_output=True, cwd=directory)


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
