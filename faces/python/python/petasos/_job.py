"""The job that this process is a rank of."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, Optional

from . import _native


class Job:
    """A rank of a job that ``petasos run``, ``mpirun`` or ``mpiexec`` has started: see
    :func:`petasos.job`. Its methods block, without the interpreter's lock. While one waits for other
    ranks, the engine of this rank serves calls, if it was opened with :meth:`engine`; in asyncio,
    call them with ``loop.run_in_executor``.

    Attributes:
        rank: the rank of this process, from 0 on.
        size: how many ranks there are.
        restarts: how often this rank was started again.
    """

    def __init__(self) -> None:
        self._native = _native.Job()
        self.rank: int = self._native.rank
        self.size: int = self._native.size
        self.restarts: int = self._native.restarts
        self._gathered = 0
        self._engine: Callable[[], Any] = lambda: None

    def peer(self, rank: int) -> str:
        """The address of a rank's engine, if that was opened with :meth:`engine`. Nothing need be
        exchanged before."""
        return self._native.peer(rank)

    @property
    def peers(self) -> list[str]:
        """The addresses of all ranks."""
        return [self.peer(rank) for rank in range(self.size)]

    def engine(self, **settings: Any) -> Any:
        """A :class:`petasos.Engine` at the address where the other ranks expect this one's."""
        from ._blocking import Engine

        engine = Engine(None, **settings)
        self._engine = weakref.ref(engine)
        return engine

    def _serving(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Waits for other ranks, and serves their calls meanwhile: one of them may need this rank
        before it comes."""
        engine = self._engine()
        if engine is None or not engine._native.is_here() or engine.closed:
            return work(*arguments)
        over = threading.Event()
        result: list[Any] = []
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                result.append(work(*arguments))
            except BaseException as error:
                failed.append(error)
            over.set()

        threading.Thread(target=wait, name="petasos-job", daemon=True).start()
        while not over.is_set():
            engine.sleep(0.0005)
        if failed:
            raise failed[0]
        return result[0]

    def aio_engine(self, **settings: Any) -> Any:
        """The same for asyncio: a :class:`petasos.aio.Engine`."""
        from .aio import Engine

        return Engine(None, **settings)

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Waits until all ranks have come, ``timeout`` seconds at most (300)."""
        self._serving(self._native.fence, timeout, False)

    def fence(self, timeout: Optional[float] = None) -> None:
        """The same; what ranks have put and committed before is known to all afterwards."""
        self._serving(self._native.fence, timeout, True)

    def put(self, key: str, value: Any) -> None:
        """Puts a bool, int, float, str or bytes on this rank's business card: others see it after
        :meth:`commit`."""
        self._native.put(key, value)

    def commit(self) -> None:
        """Makes visible what was put."""
        self._native.commit()

    def get(self, rank: int, key: str, timeout: Optional[float] = None) -> Any:
        """What a rank has put: waits until that rank has committed, ``timeout`` seconds at most
        (300)."""
        return self._serving(self._native.get, rank, key, timeout)

    def publish(self, key: str, value: Any) -> None:
        """Publishes a value for all processes, until this one ends."""
        self._native.publish(key, value)

    def lookup(self, key: str, timeout: Optional[float] = None) -> Any:
        """A published value; waits for it ``timeout`` seconds at most (0)."""
        return self._serving(self._native.lookup, key, timeout)[0]

    def unpublish(self, key: str) -> None:
        """Removes what this process has published."""
        self._native.unpublish(key)

    def allgather(self, value: Any, timeout: Optional[float] = None) -> list[Any]:
        """The values of all ranks, by rank: all have to call this. For small values (4 MiB at most)
        and the beginning of a job: they travel with the business cards, which keep them (64 MiB for
        a rank in all). Move arrays with calls, as ``examples/allreduce.py`` does."""
        key = f"petasos.py.gather.{self._gathered}"
        self._gathered += 1
        self.put(key, _native.encode(value))
        self.commit()
        self.fence(timeout)
        ranks = range(self.size)
        return [_native.decode(self._native.get(rank, key, timeout)) for rank in ranks]

    def finalize(self) -> None:
        """Leaves the job: to be called at the end. A rank that ends without has failed."""
        self._native.finalize()

    def abort(self, status: int = 1, message: str = "") -> None:
        """Ends all ranks of the job."""
        self._native.abort(status, message)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        # One that raises has failed: it does not leave in order.
        if kind is None:
            self.finalize()


_job: Optional[Job] = None


def job() -> Job:
    """The job that this process is a rank of: joined when it is first asked for.

    Raises:
        NoJobError: it is no rank of a job.

    Example::

        with petasos.job() as job:
            engine = job.engine()
            job.barrier()
    """
    global _job
    if _job is None:
        _job = Job()
    return _job
