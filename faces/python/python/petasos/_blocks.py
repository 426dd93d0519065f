"""Streams of blocks of a peer's memory."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, Callable, Optional


class _Ahead:
    """Blocks that are on the way, and the memory for them: one more than that."""

    def __init__(self, remote: Any, size: int, depth: int) -> None:
        if size < 1 or depth < 1:
            raise ValueError("blocks have a byte or more, and one is on the way at least")
        self.remote, self.size, self.depth = remote, size, depth
        self.next = 0
        self.coming: deque[tuple[memoryview, Any]] = deque()
        self.free: list[memoryview] = []

    def begin(self) -> bool:
        """Starts as many as there may be. False if none is on the way."""
        while len(self.coming) < self.depth and self.next < self.remote.nbytes:
            length = min(self.size, self.remote.nbytes - self.next)
            memory = self.free.pop() if self.free else memoryview(bytearray(self.size))
            pulled = self.remote.begin_pull_into(memory[:length], self.next)
            self.coming.append((memory, pulled))
            self.next += length
        return bool(self.coming)


def blocks(
    remote: Any, size: int, depth: int, awaitable: Optional[Callable[[Any], Any]]
) -> Iterator[memoryview] | AsyncIterator[memoryview]:
    """Called by ``Remote.blocks``: for a thread, or for an event loop."""
    ahead = _Ahead(remote, size, depth)
    return _blocking(ahead) if awaitable is None else _waiting(ahead, awaitable)


def _blocking(ahead: _Ahead) -> Iterator[memoryview]:
    at = 0
    while ahead.begin():
        memory, pulled = ahead.coming.popleft()
        ahead.begin()
        pulled.result()
        length = min(ahead.size, ahead.remote.nbytes - at)
        yield memory[:length]
        at += length
        ahead.free.append(memory)


async def _waiting(ahead: _Ahead, awaitable: Callable[[Any], Any]) -> AsyncIterator[memoryview]:
    at = 0
    while ahead.begin():
        memory, pulled = ahead.coming.popleft()
        ahead.begin()
        await awaitable(pulled)
        length = min(ahead.size, ahead.remote.nbytes - at)
        yield memory[:length]
        at += length
        ahead.free.append(memory)
