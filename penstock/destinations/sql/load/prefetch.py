"""Making the next pieces while the current one is used: our cores convert while the other side takes what is ready."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ahead(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items, made by a thread of their own, up to ``depth`` of them before they are asked for."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(depth))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item  # type: ignore[misc]


def converted_ahead(convert: Callable[[T], R], items: Iterator[T], threads: int = 2, depth: int = 4) -> Iterator[R]:
    """What ``convert`` makes of the items, in their order, several at a time; ``convert`` must let others run."""
    with ThreadPoolExecutor(threads, thread_name_prefix="convert") as pool:
        waiting: deque[Future[R]] = deque()
        for item in ahead(items):
            waiting.append(pool.submit(convert, item))
            if len(waiting) == depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
