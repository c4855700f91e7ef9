"""Sources run in processes of their own; what these need is loaded once for all of them."""

from __future__ import annotations

import multiprocessing

multiprocessing.set_forkserver_preload(["penstock_example.spool.source"])
