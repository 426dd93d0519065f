"""Engines for asyncio.

The event loop waits on the engine's descriptor, and drives it: there is no thread, and none per
call. Cancelling a task cancels the call that it awaits, here and at the target. Handlers may be
coroutines: they are cancelled when their caller cancels, is lost, or its time is over.

Example::

    async def main():
        async with petasos.aio.Engine("shm://*") as engine:
            store = engine.client(Store, "shm://store")
            first, second = await asyncio.gather(store.get("a"), store.get("b"))
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any, Optional

from ._engine import BaseEngine
from ._service import Method, Service

__all__ = ["Client", "Engine"]

#: How often an engine is driven whose transport has no descriptor, in seconds.
_POLL = 0.001
#: No timer is set for a later time than that, in seconds.
_LATE = 3600.0


class _Driver:
    """Drives an engine within an event loop."""

    def __init__(self, native: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.native, self.loop = native, loop
        self.scheduled = False
        self.stopped = False
        self.timer: Optional[asyncio.TimerHandle] = None
        self.fd: Optional[int] = native.fileno()
        if self.fd is not None:
            loop.add_reader(self.fd, self.run)
        self.wake()

    def wake(self) -> None:
        """Something was begun: the engine is driven in the loop's next pass."""
        if not self.scheduled:
            self.scheduled = True
            self.loop.call_soon(self.run)

    def run(self) -> None:
        self.scheduled = False
        if self.stopped:
            # It was scheduled before the engine was closed.
            return
        wait = self.native.pump()
        if wait is None:
            if self.native.closed():
                self.stop()
            else:
                self.wake()
            return
        if self.fd is None:
            wait = min(wait, _POLL)
        until = self.loop.time() + min(wait, _LATE)
        if self.timer is not None:
            # One that is early costs a pass; to set another costs more.
            if self.loop.time() <= self.timer.when() <= until:
                return
            self.timer.cancel()
        self.timer = self.loop.call_at(until, self.late)

    def late(self) -> None:
        self.timer = None
        self.run()

    def stop(self) -> None:
        self.stopped = True
        if self.fd is not None:
            self.loop.remove_reader(self.fd)
            self.fd = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


async def _wait(operation: Any, future: asyncio.Future[Any]) -> Any:
    try:
        return await future
    except asyncio.CancelledError:
        operation.cancel()
        raise


class Engine(BaseEngine):
    """Makes and serves calls over one endpoint, driven by the running event loop. Its arguments are
    those of :class:`petasos.Engine`; it is opened within a coroutine.

    What waits is awaited: calls, ``Lent.close``, ``Remote.pull_into``, ``Loan.borrow``. An operation
    is under way when its method has returned, before it is awaited.
    """

    def __init__(self, url: Optional[str] = "auto://*", **settings: Any) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(url, **settings)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._driver = _Driver(self._native, self._loop)
        self._native.set_awaitable(self._awaitable)

    def _awaitable(self, operation: Any) -> Coroutine[Any, Any, Any]:
        future = self._loop.create_future()
        operation.notify(future)
        self._driver.wake()
        return _wait(operation, future)

    def serve(self, service: object, provider: int = 0) -> None:
        """Serves an object of a class with :func:`petasos.service`, under a provider id. Its methods
        may be coroutines, of which many are at work at a time, or functions, which run at once."""
        found = Service.of(service)
        for method in found.methods.values():
            function = getattr(service, method.name)
            simple = not (method.is_coroutine or method.threaded or method.context is not None)
            handler = method.handler(function) if simple else self._handler(method, function)
            self._native.serve(
                method.wire,
                found.signature(method),
                provider,
                handler,
                simple,
                method.least,
                method.most,
            )

    def _handler(self, method: Method, function: Any) -> Any:
        async def work(incoming: Any) -> None:
            try:
                if method.threaded:
                    call = functools.partial(method.invoke, function, incoming)
                    result = await self._loop.run_in_executor(None, call)
                else:
                    result = method.invoke(function, incoming)
                    if method.is_coroutine:
                        result = await result
                incoming.respond(result)
            except asyncio.CancelledError as error:
                incoming.fail(error)
                raise
            except Exception as error:
                incoming.fail(error)
            finally:
                self._driver.wake()

        def begin(incoming: Any) -> None:
            task = self._loop.create_task(work(incoming))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            incoming.on_cancel(task.cancel)

        return begin

    def client(
        self,
        service: type,
        address: str,
        *,
        timeout: Optional[float] = None,
        provider: int = 0,
    ) -> Any:
        """A client for the service at an address: it has the methods of the class, whose calls are
        awaited.

        Args:
            timeout: the time limit of its calls, in seconds; ``math.inf`` for none.
            provider: which provider of the interface is called.
        """
        return Client(self, service, address, timeout, provider)

    async def close(self, patience: float = 2.0) -> None:
        """Ends the engine: what is under way fails, handlers are cancelled.

        Waits for up to ``patience`` seconds for memory that peers still reach; what is reached even
        then is never freed.
        """
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._driver.stop()
        self._native.close(patience)

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Client:
    """Calls a service: see :meth:`Engine.client`."""

    def __init__(
        self,
        engine: Engine,
        service: type,
        address: str,
        timeout: Optional[float],
        provider: int,
    ) -> None:
        found, calls = engine._methods(service, address, timeout, provider)
        self._engine, self._made = engine, (service, address, timeout, provider)
        for name, method in found.methods.items():
            setattr(self, name, _awaited(engine, method, calls[name]))

    def with_(self, *, timeout: Optional[float] = None, provider: Optional[int] = None) -> Client:
        """The same client, with another time limit in seconds, or for another provider."""
        service, address, before, number = self._made
        timeout = before if timeout is None else timeout
        provider = number if provider is None else provider
        return Client(self._engine, service, address, timeout, provider)


async def _converted(convert: Any, waiting: Coroutine[Any, Any, Any]) -> Any:
    return convert(await waiting)


def _awaited(engine: Engine, method: Method, calls: Any) -> Any:
    bind, convert, awaitable = method.bind, method.result, engine._awaitable
    least, most = method.least, method.most
    start = calls.start

    def awaited(*arguments: Any, **named: Any) -> Any:
        if named or not least <= len(arguments) <= most:
            arguments = bind(arguments, named)
        waiting = awaitable(start(arguments))
        return waiting if convert is None else _converted(convert, waiting)

    def notify(*arguments: Any, **named: Any) -> None:
        calls.notify(bind(arguments, named))
        engine._driver.wake()

    function = notify if method.one_way else awaited
    function.__name__ = method.name
    function.__doc__ = method.function.__doc__
    return function
