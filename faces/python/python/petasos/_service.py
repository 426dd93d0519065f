"""Services: a class is the interface, what serves it, and what its clients have."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Optional, TypeVar

from . import _codec, _native
from .errors import BadArguments

T = TypeVar("T", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

#: Arguments of one call.
MOST_ARGUMENTS = 255


class Call:
    """About the call that a handler serves: a parameter with this annotation is no argument, but
    gets one of these.

    Attributes:
        peer: the address of the process that calls.
        method: what it calls, as ``Service::method``.
        provider: the provider that it calls.
        timeout: the time that the caller gives, in seconds from the arrival on; ``None``: no limit.
    """

    __slots__ = ("_incoming", "method", "peer", "provider", "timeout")

    def __init__(self, incoming: Any) -> None:
        self._incoming = incoming
        self.peer: str = incoming.peer
        self.method: str = incoming.method
        self.provider: int = incoming.provider
        self.timeout: Optional[float] = incoming.timeout

    def cancelled(self) -> bool:
        """Whether the caller does not wait any more: it cancelled, is lost, or its time is over.
        Coroutines are cancelled then; a handler in a thread should look here."""
        return self._incoming.cancelled()


class Method:
    """One method of a service, as both sides know it."""

    def __init__(self, service: str, name: str, function: Callable[..., Any], owner: type) -> None:
        self.name = name
        self.wire = f"{service}::{name}"
        self.function = function
        self.one_way = getattr(function, "__petasos_one_way__", False)
        self.threaded = getattr(function, "__petasos_threaded__", False)
        self.is_coroutine = inspect.iscoroutinefunction(function)
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"{self.wire} is a generator: return a list, or lend memory")
        if self.threaded and self.is_coroutine:
            raise TypeError(f"{self.wire} is a coroutine, which needs no thread")
        hints = _codec.hints(function, owner)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        #: Where among the arguments the handler gets the call, if it does.
        self.context: Optional[int] = None
        self.names: list[str] = []
        self.converters: list[Optional[_codec.Converter]] = []
        self.least = 0
        self.most = 0
        described = []
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                raise TypeError(f"{self.wire}: a method of a service has no *args or **kwargs")
            hint = hints.get(parameter.name, inspect.Parameter.empty)
            if hint is Call:
                self.context = len(self.names)
                continue
            self.names.append(parameter.name)
            self.converters.append(None if hint is parameter.empty else _codec.converter(hint))
            self.most += 1
            if parameter.default is parameter.empty:
                self.least = self.most
            described.append(None if hint is parameter.empty else _codec.describe(hint))
        if self.most > MOST_ARGUMENTS:
            raise TypeError(f"{self.wire} has more than {MOST_ARGUMENTS} arguments")
        result = hints.get("return", inspect.Parameter.empty)
        self.result = None if result is inspect.Parameter.empty else _codec.converter(result)
        described.append(None if result is inspect.Parameter.empty else _codec.describe(result))
        #: The text whose hash both sides compare; ``None`` if an annotation is missing.
        self.text: Optional[str] = None
        if None not in described:
            *taken, given = map(str, described)
            self.text = f"({','.join(taken)})->{given}"
        if not any(self.converters):
            self.converters = []

    @property
    def signature(self) -> int:
        """The hash of the annotations; 0 if one of them is missing."""
        return 0 if self.text is None else _native.hash_name(self.text)

    def bind(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments in their order, checked."""
        if named:
            rest = dict(named)
            bound = list(arguments)
            for name in self.names[len(arguments) :]:
                if name not in rest:
                    break
                bound.append(rest.pop(name))
            if rest:
                raise TypeError(
                    f"{self.wire} takes {', '.join(self.names) or 'no arguments'}; "
                    f"{sorted(rest)} is unknown, given twice, or follows one that is left out"
                )
            arguments = tuple(bound)
        if not self.least <= len(arguments) <= self.most:
            takes = ", ".join(self.names) or "no arguments"
            raise TypeError(f"{self.wire} takes {takes}; {len(arguments)} were given")
        return arguments

    def convert(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Makes what was decoded into what the handler's annotations say."""
        if not self.converters:
            return arguments
        try:
            pairs = zip(self.converters, arguments)
            return tuple(value if to is None else to(value) for to, value in pairs)
        except BadArguments:
            raise
        except Exception as error:
            raise BadArguments(f"{type(error).__name__}: {error}") from None

    def converted(self, value: Any) -> Any:
        """Makes the result into what the client's annotations say."""
        return value if self.result is None else self.result(value)

    def handler(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the arguments alone, for one that needs no more of the call."""
        if not self.converters:
            return function
        convert = self.convert
        return lambda *arguments: function(*convert(arguments))

    def invoke(self, function: Callable[..., Any], incoming: Any) -> Any:
        """Calls a handler, which may be a coroutine function."""
        arguments = self.convert(incoming.arguments)
        if self.context is None:
            return function(*arguments)
        before, after = arguments[: self.context], arguments[self.context :]
        if len(before) < self.context:
            raise BadArguments(f"{self.wire} needs the arguments before the call")
        return function(*before, Call(incoming), *after)


class Service:
    """The interface of a class that :func:`service` has marked."""

    def __init__(self, kind: type, name: str, signatures: bool) -> None:
        self.kind = kind
        self.name = name
        self.signatures = signatures
        self.methods: dict[str, Method] = {}
        for attribute in dir(kind):
            function = inspect.getattr_static(kind, attribute)
            if attribute.startswith("_") or not inspect.isfunction(function):
                continue
            owner = next(base for base in kind.__mro__ if attribute in vars(base))
            self.methods[attribute] = Method(name, attribute, function, owner)
        if not self.methods:
            raise TypeError(f"{kind.__name__} has no methods to be called")

    def signature(self, method: Method) -> int:
        return method.signature if self.signatures else 0

    @staticmethod
    def of(thing: Any) -> Service:
        """That of a class or an object."""
        kind = thing if isinstance(thing, type) else type(thing)
        found = getattr(kind, "__petasos_service__", None)
        if found is None:
            raise TypeError(f"{kind.__name__} is no service: decorate its class, @petasos.service")
        return found


def service(
    kind: Optional[type] = None, *, name: Optional[str] = None, signatures: bool = True
) -> Any:
    """Marks a class as a service: its public methods can be called by other processes.

    The same class is the interface for clients (``engine.client(Store, address)``) and, itself or by
    a class that derives from it, what serves (``engine.serve(Store())``). A method is known by its
    name, ``Store::get``; the hash of that is its id, as for services in Rust.

    Args:
        name: the name of the service, if it is not that of the class.
        signatures: whether both sides compare a hash of the annotations with each call. It is left
            out for a method of which an annotation is missing, and where the peer has none.

    Example::

        @petasos.service
        class Store:
            def get(self, key: str) -> bytes:
                return self.data[key]
    """

    def mark(kind: T) -> T:
        kind.__petasos_service__ = Service(kind, name or kind.__name__, signatures)  # type: ignore
        return kind

    return mark if kind is None else mark(kind)


def one_way(function: F) -> F:
    """Marks a method that is not answered: the call returns at once, and the handler runs at most
    once."""
    function.__petasos_one_way__ = True  # type: ignore[attr-defined]
    return function


def threaded(function: F) -> F:
    """Marks a method whose handler runs in a thread, because it computes for long or blocks. What
    belongs to the engine is not used there: arguments that are lent memory, above all."""
    function.__petasos_threaded__ = True  # type: ignore[attr-defined]
    return function
