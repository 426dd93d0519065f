"""What calls and arrays cost between two processes, beside what else there is in Python.

    scripts/python --bench [--quick] [--json FILE] [TOPIC …]

Topics: ``null`` (a call without arguments), ``rate`` (64 calls in flight), ``arrays`` (1 KiB to 256
MiB, to the reader's memory). All contenders of a row run in turn, round after round; a figure is the
median of the rounds. ``memcpy`` and the bare round trips are limits, and not contenders.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from multiprocessing import resource_tracker, shared_memory
from multiprocessing.connection import Client as PipeClient, Listener

import numpy

import petasos

try:
    import zmq
except ImportError:
    zmq = None

SIZES = [1 << 10, 16 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]
URLS = {"shm": "shm://*", "tcp": "tcp://127.0.0.1:0"}
IN_FLIGHT = 64
END = b"end"


@petasos.service
class Bench:
    """What is called."""

    def __init__(self, engine=None, most=0):
        self.engine = engine
        if most:
            self.memory = numpy.ones(most, dtype="u1")
            self.lent = engine.lend(self.memory)

    def null(self) -> None: ...

    def lend(self):
        return self.lent


# The other process of each contender.


def serve_petasos(url, most, spin):
    with petasos.Engine(url, spin=spin == "spin") as engine:
        engine.serve(Bench(engine, int(most)))
        print(engine.address, flush=True)
        engine.run()


def serve_aio(url):
    async def main():
        async with petasos.aio.Engine(url) as engine:
            engine.serve(Bench())
            print(engine.address, flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())


def serve_pipe(most):
    """Answers each message: of a number, so many bytes."""
    with Listener(None, "AF_UNIX") as listener:
        print(listener.address, flush=True)
        with listener.accept() as pipe:
            memory = memoryview(numpy.ones(int(most) or 1, dtype="u1"))
            while (asked := pipe.recv_bytes()) != END:
                pipe.send_bytes(memory[: int(asked)])


def serve_shared(most):
    """Writes nothing new: the reader copies out of shared memory after a round trip."""
    memory = shared_memory.SharedMemory(create=True, size=int(most))
    try:
        numpy.frombuffer(memory.buf, dtype="u1")[:] = 1
        with Listener(None, "AF_UNIX") as listener:
            print(f"{listener.address} {memory.name}", flush=True)
            with listener.accept() as pipe:
                while pipe.recv_bytes() != END:
                    pipe.send_bytes(b"")
    finally:
        try:
            memory.close()
        except BufferError:
            pass
        memory.unlink()


def serve_zmq(url, most):
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(url)
    print(router.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode(), flush=True)
    memory = memoryview(numpy.ones(int(most) or 1, dtype="u1"))
    while True:
        who, asked = router.recv_multipart()
        if asked == END:
            break
        length = int(asked)
        router.send_multipart([who, memory[:length]], copy=length < 65_536)


def serve_echo():
    """A bare round trip of asyncio: a byte each way."""

    async def main():
        async def echo(reader, writer):
            while byte := await reader.read(64):
                writer.write(byte)

        path = f"/tmp/petasos-bench-{os.getpid()}"
        server = await asyncio.start_unix_server(echo, path)
        print(path, flush=True)
        async with server:
            await server.serve_forever()

    asyncio.run(main())


class Other:
    """The other process; what it writes first says where it is."""

    def __init__(self, role, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--role", role, *map(str, arguments)],
            stdout=subprocess.PIPE,
        )
        self.where = self.process.stdout.readline().decode().split()

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


class Contender:
    """Something that is timed: ``run(times)``. ``limit``: nothing competes with it."""

    limit = False
    other = None

    def close(self):
        if self.other is not None:
            self.other.close()


class Blocking(Contender):
    def __init__(self, scheme, spin=False, most=0):
        self.name = f"petasos {scheme}" + (", spinning" if spin else "")
        self.other = Other("petasos", URLS[scheme], most, "spin" if spin else "-")
        self.engine = petasos.Engine(URLS[scheme], spin=spin)
        self.client = self.engine.client(Bench, self.other.where[0])
        if most:
            self.remote = self.client.lend()

    def null(self, times):
        call = self.client.null
        for _ in range(times):
            call()

    def rate(self, times):
        start = self.client.later.null
        pending = [start() for _ in range(IN_FLIGHT)]
        for at in range(times - IN_FLIGHT):
            slot = at % IN_FLIGHT
            pending[slot].result()
            pending[slot] = start()
        for call in pending:
            call.result()

    def array(self, into, times):
        for _ in range(times):
            self.remote.pull_into(into)

    def close(self):
        self.engine.close()
        super().close()


class Loop(Contender):
    """A contender with an event loop."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.open())

    def null(self, times):
        self.loop.run_until_complete(self.one_by_one(times))

    def rate(self, times):
        async def some(times):
            for _ in range(times):
                await self.once()

        async def all_of_them():
            await asyncio.gather(*(some(times // IN_FLIGHT) for _ in range(IN_FLIGHT)))

        self.loop.run_until_complete(all_of_them())

    async def one_by_one(self, times):
        for _ in range(times):
            await self.once()

    def close(self):
        self.loop.run_until_complete(self.end())
        self.loop.close()
        super().close()


class Aio(Loop):
    def __init__(self, scheme):
        self.name, self.scheme = f"petasos {scheme}, asyncio", scheme
        super().__init__()

    async def open(self):
        self.other = Other("aio", URLS[self.scheme])
        self.engine = petasos.aio.Engine(URLS[self.scheme])
        self.once = self.engine.client(Bench, self.other.where[0]).null

    async def end(self):
        await self.engine.close()


class Echo(Loop):
    name, limit = "asyncio, a bare byte over a socket", True

    async def open(self):
        self.other = Other("echo")
        self.reader, self.writer = await asyncio.open_unix_connection(self.other.where[0])

    async def once(self):
        self.writer.write(b"x")
        await self.reader.read(64)

    async def end(self):
        self.writer.close()


class Pipe(Contender):
    def __init__(self, most=0):
        self.name = "multiprocessing Connection"
        self.other = Other("pipe", most)
        self.pipe = PipeClient(self.other.where[0], "AF_UNIX")

    def null(self, times):
        for _ in range(times):
            self.pipe.send_bytes(b"0")
            self.pipe.recv_bytes()

    def rate(self, times):
        for _ in range(IN_FLIGHT):
            self.pipe.send_bytes(b"0")
        for _ in range(times - IN_FLIGHT):
            self.pipe.recv_bytes()
            self.pipe.send_bytes(b"0")
        for _ in range(IN_FLIGHT):
            self.pipe.recv_bytes()

    def array(self, into, times):
        for _ in range(times):
            self.pipe.send_bytes(str(len(into)).encode())
            self.pipe.recv_bytes_into(into)

    def close(self):
        self.pipe.send_bytes(END)
        self.pipe.close()
        super().close()


class Shared(Contender):
    def __init__(self, most):
        self.name = "multiprocessing shared_memory"
        self.other = Other("shared", most)
        where, name = self.other.where
        self.pipe = PipeClient(where, "AF_UNIX")
        self.memory = shared_memory.SharedMemory(name=name)
        # The other process unlinks it: this one's tracker would complain.
        resource_tracker.unregister(self.memory._name, "shared_memory")

    def array(self, into, times):
        for _ in range(times):
            self.pipe.send_bytes(b"0")
            self.pipe.recv_bytes()
            into[:] = self.memory.buf[: len(into)]

    def close(self):
        self.pipe.send_bytes(END)
        self.pipe.close()
        self.memory.close()
        self.other.process.wait()


class Zmq(Contender):
    def __init__(self, scheme, most=0):
        self.name = f"pyzmq {scheme}"
        url = {"ipc": f"ipc:///tmp/petasos-bench-{os.getpid()}.zmq", "tcp": "tcp://127.0.0.1:*"}
        self.other = Other("zmq", url[scheme], most)
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(self.other.where[0])

    def null(self, times):
        for _ in range(times):
            self.socket.send(b"0")
            self.socket.recv()

    def rate(self, times):
        for _ in range(IN_FLIGHT):
            self.socket.send(b"0")
        for _ in range(times - IN_FLIGHT):
            self.socket.recv()
            self.socket.send(b"0")
        for _ in range(IN_FLIGHT):
            self.socket.recv()

    def array(self, into, times):
        for _ in range(times):
            self.socket.send(str(len(into)).encode())
            # Into the reader's memory, as all others.
            into[:] = self.socket.recv(copy=False).buffer

    def close(self):
        self.socket.send(END)
        self.other.process.wait()
        self.context.destroy()


class Memcpy(Contender):
    name, limit = "memcpy within a process", True

    def __init__(self, most):
        self.memory = memoryview(numpy.ones(most, dtype="u1"))

    def array(self, into, times):
        for _ in range(times):
            into[:] = self.memory[: len(into)]


def in_turn(contenders, run, rounds):
    """Seconds of each contender: the median of the rounds, in which all run, one after the other."""
    for contender in contenders:
        run(contender)
    took = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            began = time.perf_counter()
            run(contender)
            took[contender.name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in took.items()}


def calls(topic, rounds, times):
    contenders = [Blocking("shm", True), Blocking("shm"), Blocking("tcp"), Aio("shm"), Aio("tcp")]
    contenders += [Pipe()]
    if zmq is not None:
        contenders += [Zmq("ipc"), Zmq("tcp")]
    if topic == "null":
        contenders += [Echo()]
    try:
        took = in_turn(contenders, lambda c: getattr(c, topic)(times), rounds)
    finally:
        for contender in contenders:
            contender.close()
    limits = {contender.name for contender in contenders if contender.limit}
    for name, seconds in took.items():
        each = seconds / times
        value, unit = (each * 1e6, "us") if topic == "null" else (1e-3 / each, "k/s")
        kind = "limit" if name in limits else "result"
        yield {"topic": topic, "name": name, "value": value, "unit": unit, "kind": kind}


def arrays(rounds, most):
    contenders = [Memcpy(most), Blocking("shm", most=most), Blocking("tcp", most=most)]
    contenders += [Pipe(most), Shared(most)]
    if zmq is not None:
        contenders += [Zmq("ipc", most), Zmq("tcp", most)]
    memory = numpy.zeros(most, dtype="u1")
    try:
        for size in (size for size in SIZES if size <= most):
            into = memoryview(memory)[:size]
            times = max(1, min(2000, (64 << 20) // size))

            def run(contender):
                memory[:size:4096] = 0
                contender.array(into, times)
                if not memory[0] == memory[size - 1] == 1:
                    raise AssertionError(f"{contender.name} moved other data")

            for name, seconds in in_turn(contenders, run, rounds).items():
                value = size * times / seconds / 1e9
                kind = "limit" if name == Memcpy.name else "result"
                topic = f"array {size >> 10} KiB" if size < 1 << 20 else f"array {size >> 20} MiB"
                yield {"topic": topic, "name": name, "value": value, "unit": "GB/s", "kind": kind}
    finally:
        for contender in contenders:
            contender.close()


def main():
    if sys.argv[1:2] == ["--role"]:
        return globals()[f"serve_{sys.argv[2]}"](*sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and up to 16 MiB")
    parser.add_argument("--json", metavar="FILE", help="the figures, for programs")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="null, rate, arrays")
    options = parser.parse_args()
    topics = options.topics or ["null", "rate", "arrays"]
    if unknown := set(topics) - {"null", "rate", "arrays"}:
        parser.error(f"no such topic: {', '.join(sorted(unknown))}")
    rounds, times = (3, 1000) if options.quick else (9, 4096)
    rows = []
    for topic in topics:
        if topic == "arrays":
            made = arrays(rounds, 16 << 20 if options.quick else SIZES[-1])
        else:
            made = calls(topic, rounds, times)
        before = None
        for row in made:
            if row["topic"] != before:
                before = row["topic"]
                print(f"\n{before}")
            mark = " (a limit)" if row["kind"] == "limit" else ""
            print(f"  {row['value']:10.2f} {row['unit']:4}  {row['name']}{mark}", flush=True)
            rows.append(row)
    if options.json:
        with open(options.json, "w") as file:
            about = {"python": sys.version.split()[0], "host": socket.gethostname()}
            json.dump({"about": about, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
