"""A client that posts at a steady rate over several connections, and says what was acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.demo.sender import Client


@dataclass
class SteadyLoad:
    """Posts ``body(number)`` to ``path`` at ``rate`` requests per second. A late one is sent at once, not dropped."""

    port: int
    path: str
    body: Callable[[int], bytes]
    rate: float
    connections: int = 4
    acknowledged: int = 0
    errors: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, seconds: float) -> None:
        """Returns when all of it is answered. Raises if anything but a 200 came back."""
        began = time.monotonic()
        threads = [
            threading.Thread(target=self._post, args=(place, began, int(seconds * self.rate)), daemon=True)
            for place in range(self.connections)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise RuntimeError(f"{len(self.errors)} requests failed, the first with: {self.errors[0]}")

    def _post(self, place: int, began: float, requests: int) -> None:
        client = Client(self.port)
        taken = 0
        for number in range(place, requests, self.connections):
            time.sleep(max(0.0, began + number / self.rate - time.monotonic()))
            try:
                status, answer = client.post(self.path, self.body(number))
            except OSError as error:
                self.errors.append(str(error))
                return
            if status != 200:
                self.errors.append(f"{status} {answer}")
                return
            taken += int(str(answer.get("accepted", 0)))
        with self._lock:
            self.acknowledged += taken
