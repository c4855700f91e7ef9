"""A user's step that some records do not come back from, and a shop whose routes have it."""

from __future__ import annotations

from pathlib import Path

STEPS = """
import ctypes, json, os, signal, time


def treat(table):
    for text in table.column("data").to_pylist():
        match json.loads(text).get("do"):
            case "exit":
                os._exit(3)
            case "crash":
                ctypes.string_at(0)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(3600)
            case "hang in C":
                ctypes.PyDLL(None).sleep(3600)
            case "once":
                try:
                    os.close(os.open(__file__ + ".once", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os._exit(3)
    return table
"""


def write_steps(folder: Path) -> None:
    (folder / "steps.py").write_text(STEPS)


def record(number: int, does: str = "") -> bytes:
    return b'{"n": %d, "do": "%s"}' % (number, does.encode())
