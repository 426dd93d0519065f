"""Calls with bulk data between processes: over shared memory, TCP, and the networks of machines for
high-performance computing.

A class is the interface, what serves it, and what clients call::

    import petasos

    @petasos.service
    class Adder:
        def add(self, a: int, b: int) -> int:
            return a + b

    with petasos.Server(Adder(), url="shm://*") as server:
        with petasos.Engine("shm://*") as engine:
            assert engine.client(Adder, server.address).add(20, 22) == 42

``petasos.aio`` is the same for asyncio. Large memory is lent (:meth:`Engine.lend`), and moved by the
peer, without a copy on the way; arrays in memory of the transport (:meth:`Engine.array`) are read
where they lie. Times are in seconds, lengths in bytes where nothing else is said.
"""

from __future__ import annotations

from ._engine import Lent, SharedArray, check_interpreter

check_interpreter()

from . import aio, errors  # noqa: E402
from ._blocking import Client, Engine, Pending, Server  # noqa: E402
from ._job import Job, job  # noqa: E402
from ._native import Loan, Remote  # noqa: E402
from ._service import Call, one_way, service, threaded  # noqa: E402
from .errors import (  # noqa: E402
    AddressError,
    BadArguments,
    Busy,
    CallCancelled,
    DeadlineExceeded,
    DecodeError,
    EngineClosedError,
    ForkedError,
    JobError,
    JobTimeout,
    NoJobError,
    NoSuchMethod,
    NoSuchProvider,
    OpenError,
    PeerLost,
    PetasosError,
    RemoteError,
    SignatureMismatch,
    TooLarge,
    TransferError,
    WrongThreadError,
)

__version__ = "0.1.0"

__all__ = [
    "AddressError",
    "BadArguments",
    "Busy",
    "Call",
    "CallCancelled",
    "Client",
    "DeadlineExceeded",
    "DecodeError",
    "Engine",
    "EngineClosedError",
    "ForkedError",
    "Job",
    "JobError",
    "JobTimeout",
    "Lent",
    "Loan",
    "NoJobError",
    "NoSuchMethod",
    "NoSuchProvider",
    "OpenError",
    "PeerLost",
    "Pending",
    "PetasosError",
    "Remote",
    "RemoteError",
    "Server",
    "SharedArray",
    "SignatureMismatch",
    "TooLarge",
    "TransferError",
    "WrongThreadError",
    "aio",
    "errors",
    "job",
    "one_way",
    "service",
    "threaded",
]
