"""What engines of both kinds have: opening, settings, lending."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _native
from ._service import Service

#: Engines that may be open, closed at the interpreter's exit.
_open: weakref.WeakSet[BaseEngine] = weakref.WeakSet()


def _close_all() -> None:
    for engine in list(_open):
        if engine._native.is_here():
            engine._native.close(0.5)


atexit.register(_close_all)


class Lent:
    """Memory of an object that peers may read or write, until it is closed: an argument or a result
    like others. The peer gets a :class:`Remote` of it, and moves the data. Closed by ``with``, or
    when nothing refers to it; the memory stays exported until no access can land any more.

    Attributes:
        nbytes: its length in bytes.
    """

    __petasos_lent__ = True
    __slots__ = ("__petasos__", "__weakref__", "nbytes")

    def __init__(self, native: Any) -> None:
        self.__petasos__ = native
        self.nbytes: int = native.nbytes

    def __len__(self) -> int:
        return self.nbytes

    def close(self) -> Any:
        """Closes it, and waits until no access can land any more (to be awaited in asyncio)."""
        return self.__petasos__.close()

    def released(self) -> Any:
        """Waits until the peer has given the memory back (``Remote.release``), or it was closed (to
        be awaited in asyncio). The memory is the program's alone then."""
        return self.__petasos__.released()

    def __enter__(self) -> Lent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Lent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class SharedArray:
    """An array in memory of the transport, which peers read where it lies: an argument or a result
    like others. The peer gets a :class:`Loan` of it. Over shared memory nothing is copied.

    Attributes:
        data: the array: of numpy, or a memoryview where there is none. It may be written at any
            time; peers that read meanwhile may see a part of what is written. It stays valid after
            this is closed, as long as something refers to it.
        shape, dtype, nbytes: as numpy has them; ``dtype`` is a name such as ``'<f8'``.
    """

    __petasos_array__ = True
    __slots__ = ("__petasos__", "__weakref__", "data", "dtype", "nbytes", "shape")

    def __init__(self, native: Any) -> None:
        self.__petasos__ = native
        self.data: Any = native.view()
        self.dtype: str = native.dtype
        self.shape: tuple[int, ...] = native.shape
        self.nbytes: int = native.nbytes

    def close(self) -> Any:
        """Closes it: no peer can begin to borrow it any more (to be awaited in asyncio)."""
        return self.__petasos__.close()

    def __enter__(self) -> SharedArray:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> SharedArray:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_FORMATS = {"b1": "?", "i1": "b", "u1": "B", "f4": "f", "f8": "d", "c8": "F", "c16": "D"}
_NAMES = {
    "bool": "b1",
    "bool_": "b1",
    "int": "i8",
    "float": "f8",
    "complex": "c16",
    "complex64": "c8",
    "complex128": "c16",
    **{f"int{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"f{bits // 8}" for bits in (16, 32, 64)},
}


def _kind(dtype: Any) -> str:
    """A kind of numbers by its short name, such as ``f8``, without a need for numpy."""
    text = getattr(dtype, "str", None) or getattr(dtype, "__name__", None) or str(dtype)
    return _NAMES.get(text, text)


class BaseEngine:
    """See :class:`petasos.Engine` and :class:`petasos.aio.Engine`."""

    def __init__(
        self,
        url: Optional[str] = "auto://*",
        *,
        secret: Optional[bytes] = None,
        secret_file: Union[str, os.PathLike[str], None] = None,
        attended: bool = False,
        timeout: Optional[float] = None,
        patience: Optional[float] = None,
        idle: Optional[float] = None,
        spin: bool = False,
        refused: Optional[str] = None,
        calls_per_peer: Optional[int] = None,
        calls_in_all: Optional[int] = None,
        queue_per_peer: Optional[int] = None,
        max_body: Optional[int] = None,
    ) -> None:
        settings = {
            "timeout": timeout,
            "patience": patience,
            "idle": idle,
            "spin": spin,
            "refused": refused,
            "calls_per_peer": calls_per_peer,
            "calls_in_all": calls_in_all,
            "queue_per_peer": queue_per_peer,
            "max_body": max_body,
        }
        self._native = _native.Engine(url, secret, secret_file, attended, settings)
        _open.add(self)

    @property
    def address(self) -> str:
        """Where peers reach this engine: to be given to clients."""
        return self._native.address

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.closed()

    def lend(self, memory: Any, access: str = "r") -> Lent:
        """Lends memory to peers, without a copy: it is an argument of a call, and the peer moves
        the data.

        Args:
            memory: what has the buffer protocol and lies in one piece: a numpy array, ``bytes``,
                ``bytearray``, ``array.array``, a memoryview, ``tensor.numpy()`` of torch. It cannot
                be resized meanwhile.
            access: what peers may do: ``'r'``ead, ``'w'``rite, or both, ``'rw'``.

        Memory of up to 256 bytes that is only read is copied, and travels with the call.
        """
        return Lent(self._native.lend(memory, access))

    def array(self, shape: Union[int, Sequence[int]], dtype: Any = "f8") -> SharedArray:
        """An array of zeroes in memory of the transport, which peers read where it lies.

        Args:
            shape: its length in each dimension, in numbers.
            dtype: what its numbers are: a dtype of numpy, or its name, as ``'f4'`` or ``'int64'``.
        """
        lengths = [shape] if isinstance(shape, int) else [int(length) for length in shape]
        return SharedArray(self._native.array(_kind(dtype), lengths))

    def usage(self) -> dict[str, int]:
        """What is under way now: ``calls`` made, calls being served (``serving``), ``operations``
        of the network, ``tasks``, and pieces of memory of Python objects that are ``lent``."""
        return self._native.usage()

    def _methods(self, service: Any, address: str, timeout: Optional[float], provider: int) -> Any:
        found = Service.of(service)
        return found, {
            name: self._native.calls(
                address, method.wire, found.signature(method), provider, timeout
            )
            for name, method in found.methods.items()
        }

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} at {self.address}>"


def check_interpreter() -> None:
    """Refuses interpreters in which an engine would not be safe."""
    enabled = getattr(sys, "_is_gil_enabled", None)
    if enabled is not None and not enabled():
        raise ImportError(
            "petasos needs the interpreter's lock, which this free-threaded build runs without: "
            "start it with -X gil=1, or use the usual build of Python"
        )
