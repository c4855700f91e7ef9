"""Hazards that last while others strike."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tests.chaos.scene import Hazard, Scene


class Lasting:
    """Hazards that last while others strike, some at a time. What goes wrong in one is raised when it is waited for."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most)
        self._most = most
        self._running: set[Future[None]] = set()

    def __enter__(self) -> Lasting:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.wait()
        self._pool.shutdown()

    def begin(self, strike: Callable[[int, Hazard, Scene], None], number: int, hazard: Hazard, scene: Scene) -> None:
        """Let it strike, as soon as there are fewer than the most."""
        while len(self._running) >= self._most:
            self._settle(FIRST_COMPLETED)
        self._running.add(self._pool.submit(strike, number, hazard, scene))

    def wait(self) -> None:
        self._settle(ALL_COMPLETED)

    def _settle(self, until: str) -> None:
        done, self._running = wait(self._running, return_when=until)
        for each in done:
            each.result()
