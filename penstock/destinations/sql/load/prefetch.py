"""Makes the next pieces while the current one is used: our cores convert while the target loads what is ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def prefetch(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items, made by a separate thread, up to ``depth`` of them before they are asked for."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(depth))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item  # type: ignore[misc]


def prefetch_converted(convert: Callable[[T], R], items: Iterator[T], threads: int = 2, depth: int = 4) -> Iterator[R]:
    """The items converted by ``convert``, in their order, several at a time; ``convert`` must release the GIL."""
    with ThreadPoolExecutor(threads, thread_name_prefix="convert") as pool:
        waiting: deque[Future[R]] = deque()
        for item in prefetch(items):
            waiting.append(pool.submit(convert, item))
            if len(waiting) == depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
