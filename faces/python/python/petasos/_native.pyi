"""The part of the package that is not Python. Programs use what the package exports."""

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Callable, Optional, Union, final

@final
class Engine:
    address: str
    def __new__(
        cls,
        url: Optional[str],
        secret: Optional[bytes],
        secret_file: Union[str, os.PathLike[str], None],
        attended: bool,
        settings: dict[str, Any],
    ) -> Engine: ...
    def calls(
        self, address: str, name: str, signature: int, provider: int, timeout: Optional[float]
    ) -> Calls: ...
    def serve(
        self,
        name: str,
        signature: int,
        provider: int,
        handler: Callable[..., Any],
        plain: bool,
        least: int,
        most: int,
    ) -> None: ...
    def lend(self, memory: Any, access: str) -> Bulk: ...
    def array(self, kind: str, shape: Sequence[int]) -> Array: ...
    def sleep(self, time: float) -> Any: ...
    def set_awaitable(self, awaitable: Callable[[Pending], Any]) -> None: ...
    def pump(self) -> Optional[float]: ...
    def fileno(self) -> Optional[int]: ...
    def usage(self) -> dict[str, int]: ...
    def close(self, patience: float) -> None: ...
    def closed(self) -> bool: ...
    def is_here(self) -> bool: ...

@final
class Calls:
    def call(self, arguments: tuple[Any, ...]) -> Any: ...
    def start(self, arguments: tuple[Any, ...]) -> Pending: ...
    def notify(self, arguments: tuple[Any, ...]) -> None: ...

@final
class Pending:
    """An operation under way. Dropping it cancels it."""

    def result(self) -> Any:
        """Blocks until it is over: its result, once."""
    def done(self, seconds: float = 0.0) -> bool:
        """Waits for so many seconds at most: whether it is over. It goes on if not."""
    def notify(self, future: Any) -> None: ...
    def cancel(self) -> None:
        """Ends it."""

@final
class Incoming:
    arguments: tuple[Any, ...]
    peer: str
    method: str
    provider: int
    timeout: Optional[float]
    def respond(self, value: Any) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def refuse(self, text: str) -> None: ...
    def cancelled(self) -> bool: ...
    def on_cancel(self, call: Callable[[], Any]) -> None: ...

@final
class Bulk:
    nbytes: int
    def __len__(self) -> int: ...
    def close(self) -> Any: ...
    def released(self) -> Any: ...

@final
class Remote:
    """Memory that a peer lends, as an argument or a result.

    What waits here returns when it is over; with an engine for asyncio it is to be awaited. A transfer
    is under way when its method has returned. Offsets and lengths are in bytes.
    """

    nbytes: int
    """Its length in bytes."""
    access: str
    """What may be done with it: ``'r'``, ``'w'`` or ``'rw'``."""
    def __len__(self) -> int: ...
    def pull_into(self, memory: Any, offset: int = 0) -> Any:
        """Fills the memory of an object with the peer's, from ``offset`` on, without a copy on the
        way. The memory is writable and in one piece, and stays exported until it is over.

        Raises:
            TransferError: that is beyond the end, or the owner has closed it.
            PeerLost: its owner is lost.
        """
    def begin_pull_into(self, memory: Any, offset: int = 0) -> Pending:
        """The same; it goes on while the program does something else."""
    def push_from(self, memory: Any, offset: int = 0) -> Any:
        """Writes the memory of an object to the peer's, at ``offset``. When it is over the peer's
        program sees it. Raises as :meth:`pull_into`."""
    def begin_push_from(self, memory: Any, offset: int = 0) -> Pending:
        """The same; it goes on while the program does something else."""
    def pull(self, offset: int = 0, length: Optional[int] = None) -> Any:
        """Pulls ``length`` bytes from ``offset`` on, all by default, into new memory: a memoryview.
        At most ``max_body`` bytes of the engine (256 MiB)."""
    def blocks(
        self, size: int = ..., depth: int = 4
    ) -> Union[Iterator[memoryview], AsyncIterator[memoryview]]:
        """All of it in blocks of ``size`` bytes (1 MiB), ``depth`` of which are on the way while one
        is used. Each is good until the next. In asyncio: ``async for``."""
    def release(self) -> None:
        """Gives the memory back to its owner, before the call is answered: to be called when all
        transfers are over."""

@final
class Array:
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    def view(self) -> Any: ...
    def close(self) -> Any: ...

@final
class Loan:
    """An array of a peer, as an argument or a result, to be borrowed while its owner keeps it."""

    shape: tuple[int, ...]
    """Its length in each dimension, in numbers."""
    dtype: str
    """What its numbers are, as numpy names it: ``'<f8'``."""
    nbytes: int
    """Its length in bytes."""
    def borrow(self) -> Any:
        """The array, and whether it is read where it lies: ``(array, in_place)``. It is one of numpy,
        or a memoryview. In place it is read-only, and shows what its owner changes; a copy does not
        change. It may be kept after the owner has closed it. In asyncio, to be awaited."""

@final
class Job:
    rank: int
    size: int
    restarts: int
    def __new__(cls) -> Job: ...
    def peer(self, rank: int) -> str: ...
    def put(self, key: str, value: Any) -> None: ...
    def commit(self) -> None: ...
    def get(self, rank: int, key: str, timeout: Optional[float]) -> Any: ...
    def fence(self, timeout: Optional[float], cards: bool) -> None: ...
    def publish(self, key: str, value: Any) -> None: ...
    def lookup(self, key: str, timeout: Optional[float]) -> tuple[Any, str]: ...
    def unpublish(self, key: str) -> None: ...
    def finalize(self) -> None: ...
    def abort(self, status: int, message: str) -> None: ...

def hash_name(text: str) -> int: ...
def encode(value: Any) -> bytes: ...
def decode(bytes: bytes) -> Any: ...
