"""Making the next pieces while the current one is used: one core converts, the other side takes what is ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items, made by a thread of their own, up to ``depth`` of them before they are asked for."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(depth))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item  # type: ignore[misc]
