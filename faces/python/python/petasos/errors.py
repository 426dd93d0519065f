"""What calls, transfers and engines raise.

Every class is a :class:`PetasosError`. Where a peer is involved, ``peer`` is its address and
``method`` what was called; ``remedy`` says what to do.
"""

from __future__ import annotations

import re

__all__ = [
    "AddressError",
    "BadArguments",
    "Busy",
    "CallCancelled",
    "DeadlineExceeded",
    "DecodeError",
    "EngineClosedError",
    "ForkedError",
    "JobError",
    "JobTimeout",
    "NoJobError",
    "NoSuchMethod",
    "NoSuchProvider",
    "OpenError",
    "PeerLost",
    "PetasosError",
    "RemoteError",
    "SignatureMismatch",
    "TooLarge",
    "TransferError",
    "WrongThreadError",
]


class PetasosError(Exception):
    """The base of all errors of this package.

    Attributes:
        peer: the address of the process that was called, or ``None``.
        method: what was called, as ``Service::method``, or ``None``.
        remedy: what to do about it, in words.
    """

    peer: str | None = None
    method: str | None = None
    remedy: str = ""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} [{self.remedy}]" if self.remedy else text


class PeerLost(PetasosError, ConnectionError):
    """The peer ended, was never reached, or was not heard of. It may have done the work, or part
    of it. ``reason`` says which."""

    reason: str = ""
    remedy = (
        "the next call looks the address up again and finds a server that was started there; "
        "repeat only what may run twice"
    )


class DeadlineExceeded(PetasosError, TimeoutError):
    """There was no answer within ``timeout`` seconds. The target was told to stop."""

    timeout: float = 0.0
    remedy = "give it more time with timeout=, or look at the peer: it may be stopped or overloaded"


class Busy(PetasosError):
    """The target, or the queue here, takes no more calls now. Nothing was done."""

    retry_after: float = 0.0
    remedy = "call again after retry_after seconds"


class NoSuchMethod(PetasosError):
    """The target does not serve this method."""

    remedy = "another program, or another version, is at that address"


class NoSuchProvider(PetasosError):
    """The target serves the method, but not under this provider id."""

    provider: int = 0
    remedy = "serve the object with that provider=, or call another one"


class SignatureMismatch(PetasosError):
    """The annotations of the method differ between the two programs."""

    remedy = "use one version of the service's class in both"


class CallCancelled(PetasosError):
    """The target cancelled the call."""


class RemoteError(PetasosError):
    """The handler raised an exception.

    Where that was a built-in one, such as ``KeyError``, this is an instance of that class, too.

    Attributes:
        kind: the name of its class; ``""`` if the handler is not written in Python.
        text: its text.
    """

    kind: str = ""
    text: str = ""
    reason: str = ""


class BadArguments(PetasosError, TypeError):
    """The target does not take these arguments. Nothing was done. A handler may raise it, too."""

    reason: str = ""


class DecodeError(PetasosError, ValueError):
    """Bytes of a peer are not what they should be."""


class TooLarge(PetasosError, ValueError):
    """Arguments, result or transfer exceed a limit."""

    remedy = "lend large memory (engine.lend) rather than send it, or raise the limit that is named"


class TransferError(PetasosError):
    """Memory could not be lent, or data not be moved."""


class AddressError(PetasosError, ValueError):
    """Not an address, or not one for this engine's transport."""


class OpenError(PetasosError, OSError):
    """No endpoint could be opened."""


class EngineClosedError(PetasosError):
    """The engine was closed, and with it what was under way."""


class WrongThreadError(PetasosError, RuntimeError):
    """An engine was used by another thread than the one that opened it."""


class ForkedError(PetasosError, RuntimeError):
    """An engine of the parent was used in a child that was forked."""


class JobError(PetasosError):
    """The launcher of the job refused, or is lost."""


class JobTimeout(JobError, TimeoutError):
    """Other ranks did not come in time. The text names them."""


class NoJobError(JobError):
    """This process is no rank of a job."""

    remedy = "start it with: petasos run -n 4 python program.py"


# Of these alone an exception that was raised elsewhere is an instance here.
_BUILT_IN = {
    kind.__name__: kind
    for kind in (
        ArithmeticError,
        AssertionError,
        AttributeError,
        BufferError,
        EOFError,
        IndexError,
        KeyError,
        LookupError,
        MemoryError,
        NotImplementedError,
        OverflowError,
        RuntimeError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    )
}
_RAISED = re.compile(r"python ([A-Za-z_][A-Za-z_0-9]*): (.*)", re.DOTALL)
_remote: dict[str, type[RemoteError]] = {}


def _remote_class(kind: str) -> type[RemoteError]:
    base = _BUILT_IN.get(kind)
    if base is None:
        return RemoteError
    if kind not in _remote:
        # The text is as for others: a KeyError would show it in quotes.
        body = {"__doc__": f"A {kind} of a handler.", "__str__": PetasosError.__str__}
        _remote[kind] = type(f"Remote{kind}", (RemoteError, base), body)
    return _remote[kind]


def _make(kind: str, text: str, fields: dict[str, object]) -> PetasosError:
    """Called by the native part."""
    made: type[PetasosError] = globals()[kind]
    if made is RemoteError:
        raised = _RAISED.fullmatch(str(fields["reason"]))
        if raised:
            fields["kind"], fields["text"] = raised.groups()
            made = _remote_class(raised[1])
        else:
            fields["text"] = fields["reason"]
    error = made(text)
    for name, value in fields.items():
        setattr(error, name, value)
    return error
