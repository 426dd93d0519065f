"""Engines whose calls block."""

from __future__ import annotations

import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional


from ._engine import BaseEngine
from ._service import Method, Service


class Engine(BaseEngine):
    """Makes and serves calls over one endpoint, for programs whose calls block.

    It belongs to the thread that opens it. Nothing happens unless it is driven: by a call that
    waits, or by :meth:`run`. Calls of others are served meanwhile, one after the other; while a
    handler itself waits for something, other calls wait.

    Args:
        url: the transport, and the name or address: ``shm://NAME``, ``tcp://HOST:PORT``,
            ``auto://*`` (shared memory on this node, TCP on the loopback interface),
            ``auto://HOST:PORT``, ``ofi://…``, ``ucx://…``, ``self://*``. ``*`` and port 0 take what
            is free. ``None``: that of this rank of the job.
        secret, secret_file: for networks: what both sides prove to know.
        attended: a thread serves accesses to memory that is lent while the program computes.
        timeout: the time limit of calls that set none, in seconds; 30 by default.
        patience: how long calls wait for a peer that has not started yet, in seconds; 10.
        idle: how long it polls before it sleeps, in seconds; by default for as long as a wake-up
            takes. ``spin=True``: for ever, for the lowest latency on a core that nothing else needs.
        refused: what calls do while no process listens at their address: ``'wait'``, ``'fail'``, or
            (``None``) wait for one that was never there, and fail at once if there was one before.
        calls_per_peer, calls_in_all: calls in progress that are taken (256, 65,536).
        queue_per_peer: calls to one peer that may wait here (65,536).
        max_body: the largest arguments or result, in bytes (256 MiB).

    Example::

        with petasos.Engine("shm://store") as engine:
            engine.serve(Store())
            engine.run()
    """

    _stopping = False
    _pool: Optional[ThreadPoolExecutor] = None

    def serve(self, service: object, provider: int = 0) -> None:
        """Serves an object of a class with :func:`petasos.service`, under a provider id."""
        found = Service.of(service)
        for method in found.methods.values():
            function = getattr(service, method.name)
            if method.is_coroutine:
                raise TypeError(
                    f"{method.wire} is a coroutine: serve it with petasos.aio.Engine, whose event "
                    "loop runs it"
                )
        for method in found.methods.values():
            function = getattr(service, method.name)
            plain = method.context is None and not method.threaded
            handler = method.handler(function) if plain else self._handler(method, function)
            self._native.serve(
                method.wire,
                found.signature(method),
                provider,
                handler,
                plain,
                method.least,
                method.most,
            )

    def _handler(self, method: Method, function: Any) -> Any:
        def answer(incoming: Any) -> None:
            try:
                incoming.respond(method.invoke(function, incoming))
            except Exception as error:
                incoming.fail(error)
            except BaseException as error:
                incoming.fail(error)
                if not method.threaded:
                    raise

        if not method.threaded:
            return answer
        return lambda incoming: self._threads().submit(answer, incoming)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                max_workers=max(4, os.cpu_count() or 4), thread_name_prefix="petasos-handler"
            )
        return self._pool

    def client(
        self,
        service: type,
        address: str,
        *,
        timeout: Optional[float] = None,
        provider: int = 0,
    ) -> Any:
        """A client for the service at an address: it has the methods of the class, which block until
        the answer is there, and return the result.

        Args:
            timeout: the time limit of its calls, in seconds; ``math.inf`` for none.
            provider: which provider of the interface is called.

        ``client.later`` has the same methods, which return at once, with a :class:`Pending`.
        """
        return Client(self, service, address, timeout, provider)

    def run(self, seconds: float = math.inf) -> None:
        """Serves calls for so many seconds, or until :meth:`stop`."""
        self._stopping = False
        left = seconds
        while not self._stopping and left > 0:
            step = min(left, 0.1)
            self._native.sleep(step)
            left -= step

    def stop(self) -> None:
        """Has :meth:`run` return, within 0.1 s: to be called by a handler, or another thread."""
        self._stopping = True

    def sleep(self, seconds: float) -> None:
        """Waits for so many seconds, and serves calls meanwhile."""
        self._native.sleep(seconds)

    def close(self, patience: float = 2.0) -> None:
        """Ends the engine: what is under way fails with :class:`EngineClosedError`.

        Waits for up to ``patience`` seconds for memory that peers still reach; what is reached even
        then is never freed.
        """
        self._stopping = True
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        self._native.close(patience)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        self._calls = calls
        for name, method in found.methods.items():
            setattr(self, name, _blocking(method, calls[name]))
        self.later = Later(found, calls)

    def with_(self, *, timeout: Optional[float] = None, provider: Optional[int] = None) -> Client:
        """The same client, with another time limit in seconds, or for another provider."""
        service, address, before, number = self._made
        timeout = before if timeout is None else timeout
        provider = number if provider is None else provider
        return Client(self._engine, service, address, timeout, provider)


class Later:
    """The methods of a client, which return a :class:`Pending`."""

    def __init__(self, found: Service, calls: dict[str, Any]) -> None:
        for name, method in found.methods.items():
            setattr(self, name, _later(method, calls[name]))


class Pending:
    """A call that is under way. Dropping it cancels it, here and at the target."""

    __slots__ = ("_method", "_native")

    def __init__(self, method: Method, native: Any) -> None:
        self._method, self._native = method, native

    def result(self) -> Any:
        """Blocks until it is over: the result, once."""
        return self._method.converted(self._native.result())

    def done(self, seconds: float = 0.0) -> bool:
        """Waits for so many seconds at most: whether it is over. It goes on if not."""
        return self._native.done(seconds)

    def cancel(self) -> None:
        """Ends it: the target is told, too."""
        self._native.cancel()


def _blocking(method: Method, calls: Any) -> Any:
    call, convert, bind = calls.call, method.result, method.bind
    least, most = method.least, method.most
    if method.one_way:
        call = calls.notify

    def blocking(*arguments: Any, **named: Any) -> Any:
        if named or not least <= len(arguments) <= most:
            arguments = bind(arguments, named)
        result = call(arguments)
        return result if convert is None else convert(result)

    blocking.__name__ = method.name
    blocking.__doc__ = method.function.__doc__
    return blocking


def _later(method: Method, calls: Any) -> Any:
    def later(*arguments: Any, **named: Any) -> Pending:
        return Pending(method, calls.start(method.bind(arguments, named)))

    later.__name__ = method.name
    later.__doc__ = method.function.__doc__
    return later


class Server:
    """Serves objects in a thread of its own, for programs that do something else meanwhile.

    Example::

        with petasos.Server(Store(), url="shm://store") as server:
            print(server.address)
            input("Enter ends it. ")
    """

    def __init__(self, *services: object, url: str = "auto://*", **settings: Any) -> None:
        self._ready = threading.Event()
        self._failed: Optional[BaseException] = None
        self._engine: Optional[Engine] = None
        self.address = ""
        self._thread = threading.Thread(
            target=self._run, args=(services, url, settings), name="petasos-server", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            raise self._failed

    def _run(self, services: tuple[object, ...], url: str, settings: dict[str, Any]) -> None:
        try:
            with Engine(url, **settings) as engine:
                for service in services:
                    engine.serve(service)
                self._engine, self.address = engine, engine.address
                self._ready.set()
                engine.run()
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._failed = error
            self._ready.set()

    def close(self) -> None:
        """Ends it, and waits for its thread."""
        if self._engine is not None:
            self._engine.stop()
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


