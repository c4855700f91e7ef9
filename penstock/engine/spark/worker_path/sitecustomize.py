"""Runs at the start of every Python process that Spark's JVM starts: Python itself looks for a module of this name.

Where the driver has a fork server, the process hands its work over to a fork of it, which need not import anything, and
only waits for its end. Elsewhere, or if that server does not answer, it goes on by itself. Spark puts a zip of PySpark
before everything else on the path, so it would unpack and compile PySpark anew, which is most of what a short one does.
Where the same PySpark is installed, with its compiled modules, that zip is left out.
"""

from __future__ import annotations

import os
import sys

_PATIENCE = 4.0
"""Seconds for a fork server that has loaded everything to answer. Spark gives a process ten in all."""
_HERE = os.path.dirname(__file__)
_INSTALLED = {os.path.join(folder, "pyspark", "python", "lib") for folder in sys.path}


def _hand_over(folder: str, module: str, *arguments: str) -> None:
    """Does not return if a fork does the work."""
    import json
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        try:
            # Relative, because the path of a socket must be short.
            os.chdir(folder)
            server.settimeout(_PATIENCE if os.path.exists("fork.ready") else None)
            server.connect("fork.socket")
            if not server.recv(1):
                return
        except OSError:
            return
        finally:
            os.chdir(here)
        server.settimeout(None)
        request = json.dumps({"words": [module, *arguments], "variables": dict(os.environ), "folder": here}).encode()
        socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(request)
        # The fork has them now; Spark notices the end of a process by the end of its streams.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os._exit(int.from_bytes(server.recv(1) or b"\1", "big"))


_FORK_SERVER = os.environ.get("PENSTOCK_FORK_SERVER")
if _FORK_SERVER and sys.orig_argv[1] == "-m" and sys.orig_argv[2].startswith(("pyspark.", "penstock.")):
    _hand_over(_FORK_SERVER, *sys.orig_argv[2:])

sys.path[:] = [entry for entry in sys.path if entry != _HERE and os.path.dirname(entry) not in _INSTALLED]

# Whoever has a module of this name, too, wants it to run.
_this = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != __name__:
        raise
    sys.modules[__name__] = _this
