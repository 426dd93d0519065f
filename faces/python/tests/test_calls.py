"""Calls that block."""

import dataclasses
import gc
import math
import threading
import time
import unittest
from typing import List, Optional

import petasos

from .common import Process, eventually


@dataclasses.dataclass
class Sample:
    step: int
    values: List[float]


class MyError(Exception):
    pass


@petasos.service
class Recorder:
    def __init__(self):
        self.forgotten = threading.Event()
        self.threads = []

    def add(self, a: int, b: int = 10) -> int:
        return a + b

    def record(self, sample: Sample) -> Sample:
        if not isinstance(sample, Sample):
            raise AssertionError("not a Sample")
        return Sample(sample.step + 1, [2 * value for value in sample.values])

    def maybe(self, step: int) -> Optional[Sample]:
        return Sample(step, []) if step else None

    def echo(self, value):
        return value

    def fail(self, how):
        if how == "key":
            raise KeyError("no such thing")
        if how == "own":
            raise MyError("of this program")
        if how == "bad":
            raise petasos.BadArguments("not that")
        if how == "busy":
            raise petasos.Busy("later")
        if how == "result":
            return object()
        raise ZeroDivisionError("always")

    def slow(self, seconds: float) -> None:
        time.sleep(seconds)

    def about(self, call: petasos.Call, what: str) -> dict:
        return {"peer": call.peer, "method": call.method, "time": call.timeout, "what": what}

    @petasos.threaded
    def in_thread(self, number: int) -> int:
        self.threads.append(threading.current_thread().name)
        if number < 0:
            raise ValueError("negative")
        return number * number

    @petasos.one_way
    def forget(self) -> None:
        self.forgotten.set()

    def _hidden(self):
        return "no"


class Calls(unittest.TestCase):
    URL = "shm://*"

    def setUp(self):
        self.served = Recorder()
        self.server = petasos.Server(self.served, url=self.URL)
        self.engine = petasos.Engine(self.URL)
        self.client = self.engine.client(Recorder, self.server.address)

    def tearDown(self):
        self.engine.close()
        self.server.close()

    def test_arguments_and_results(self):
        call = self.client
        self.assertEqual(call.add(1, 2), 3)
        self.assertEqual(call.add(1), 11)
        self.assertEqual(call.add(b=5, a=1), 6)
        self.assertEqual(call.add(1, b=5), 6)
        self.assertEqual(call.echo([1, {"a": (2, b"x")}]), [1, {"a": [2, b"x"]}])
        big = b"x" * (3 << 20)
        self.assertEqual(call.echo(big), big)

    def test_dataclasses(self):
        self.assertEqual(self.client.record(Sample(1, [0.5])), Sample(2, [1.0]))
        self.assertEqual(self.client.maybe(3), Sample(3, []))
        self.assertIsNone(self.client.maybe(0))

    def test_wrong_arguments(self):
        for wrong in (lambda c: c.add(), lambda c: c.add(1, 2, 3), lambda c: c.add(c=1)):
            with self.assertRaises(TypeError):
                wrong(self.client)
        with self.assertRaises(TypeError):
            self.client.echo(object())
        with self.assertRaisesRegex(petasos.BadArguments, "values"):
            self.client.record({"step": 1})
        # A caller with another idea of it.
        calls = self.engine._native.calls(self.server.address, "Recorder::echo", 0, 0, None)
        for arguments in ((), (1, 2)):
            with self.assertRaisesRegex(petasos.BadArguments, "arguments"):
                calls.call(arguments)
        self.assertEqual(calls.call((1,)), 1)
        with self.assertRaises(AttributeError):
            self.client._hidden()

    def test_exceptions_travel_with_type_and_text(self):
        with self.assertRaises(KeyError) as caught:
            self.client.fail("key")
        error = caught.exception
        self.assertIsInstance(error, petasos.RemoteError)
        self.assertEqual((error.kind, error.text), ("KeyError", "'no such thing'"))
        self.assertEqual((error.peer, error.method), (self.server.address, "Recorder::fail"))
        self.assertIn(self.server.address, str(error))
        with self.assertRaises(ZeroDivisionError):
            self.client.fail("")
        with self.assertRaises(petasos.RemoteError) as caught:
            self.client.fail("own")
        self.assertIs(type(caught.exception), petasos.RemoteError)
        self.assertEqual(caught.exception.kind, "MyError")
        with self.assertRaisesRegex(petasos.BadArguments, "not that"):
            self.client.fail("bad")
        with self.assertRaises(petasos.Busy) as caught:
            self.client.fail("busy")
        self.assertGreater(caught.exception.retry_after, 0)
        with self.assertRaisesRegex(petasos.RemoteError, "does not travel"):
            self.client.fail("result")
        self.assertEqual(self.client.add(1, 1), 2)

    def test_deadlines(self):
        quick = self.client.with_(timeout=0.05)
        before = time.monotonic()
        with self.assertRaises(TimeoutError) as caught:
            quick.slow(0.4)
        self.assertLess(time.monotonic() - before, 0.35)
        self.assertIsInstance(caught.exception, petasos.DeadlineExceeded)
        self.assertEqual(caught.exception.peer, self.server.address)
        self.assertTrue(caught.exception.remedy)
        self.assertAlmostEqual(caught.exception.timeout, 0.05)
        self.assertIsNone(self.client.with_(timeout=math.inf).slow(0))
        for wrong in (-1.0, math.nan):
            with self.assertRaises(ValueError):
                self.client.with_(timeout=wrong)

    def test_context(self):
        said = self.client.with_(timeout=7.5).about("it")
        self.assertEqual(said["peer"], self.engine.address)
        self.assertEqual((said["method"], said["what"]), ("Recorder::about", "it"))
        self.assertGreater(said["time"], 1.0)

    def test_handlers_in_threads(self):
        pending = [self.client.later.in_thread(number) for number in range(50)]
        self.assertEqual([p.result() for p in pending], [n * n for n in range(50)])
        with self.assertRaises(ValueError):
            self.client.in_thread(-1)
        self.assertTrue(all(name.startswith("petasos-handler") for name in self.served.threads))

    def test_one_way(self):
        self.assertIsNone(self.client.forget())
        self.assertTrue(self.served.forgotten.wait(20))

    def test_many_in_flight(self):
        pending = [self.client.later.add(n, n) for n in range(500)]
        self.assertEqual([p.result() for p in pending], [2 * n for n in range(500)])
        with self.assertRaises(RuntimeError):
            pending[0].result()

    def test_pending(self):
        slow = self.client.later.slow(0.2)
        self.assertFalse(slow.done())
        self.assertFalse(slow.done(0.01))
        self.assertTrue(slow.done(20))
        self.assertTrue(slow.done())
        self.assertIsNone(slow.result())
        lost = self.client.later.slow(0.1)
        lost.cancel()
        del lost
        gc.collect()
        self.assertEqual(self.client.add(1, 1), 2)
        self.assertEqual(self.engine.usage()["calls"], 0)

    def test_providers(self):
        self.engine.serve(Recorder(), provider=3)
        own = self.engine.client(Recorder, self.engine.address, provider=3)
        self.assertEqual(own.add(1, 1), 2)
        with self.assertRaises(petasos.NoSuchProvider) as caught:
            own.with_(provider=4).add(1, 1)
        self.assertEqual(caught.exception.provider, 4)
        with self.assertRaisesRegex(ValueError, "provider 3"):
            self.engine.serve(Recorder(), provider=3)

    def test_signatures(self):
        @petasos.service(name="Recorder")
        class Other:
            def add(self, a: str, b: str) -> str: ...

            def echo(self, value: int) -> int: ...

        other = self.engine.client(Other, self.server.address)
        with self.assertRaises(petasos.SignatureMismatch) as caught:
            other.add("a", "b")
        self.assertEqual(caught.exception.method, "Recorder::add")
        # Where one side has no annotations there is nothing to be compared.
        self.assertEqual(other.echo(5), 5)
        self.assertEqual(other.echo(6), 6)

        @petasos.service(name="Recorder", signatures=False)
        class Bare:
            def add(self, a, b): ...

            def missing(self): ...

        bare = self.engine.client(Bare, self.server.address)
        self.assertEqual((bare.add(1, 2), bare.add(2, 3)), (3, 5))
        with self.assertRaises(petasos.NoSuchMethod):
            bare.missing()

    def test_ids_are_those_of_rust(self):
        from petasos import _native

        self.assertEqual(_native.hash_name("a"), 0xAF63DC4C8601EC8C)
        method = petasos._service.Service.of(Recorder).methods["add"]
        self.assertEqual((method.wire, method.text), ("Recorder::add", "(int,int)->int"))

    def test_other_threads_are_refused(self):
        caught = []

        def use():
            for what in (self.engine.usage, lambda: self.client.add(1, 1)):
                try:
                    what()
                except petasos.WrongThreadError as error:
                    caught.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        self.assertEqual(len(caught), 2)

    def test_what_other_threads_drop_comes_home(self):
        held = [[self.client.later.slow(0), self.engine.lend(bytearray(1000))] for _ in range(20)]
        self.assertEqual(self.engine.usage()["lent"], 20)

        def drop():
            held.clear()
            gc.collect()

        thread = threading.Thread(target=drop)
        thread.start()
        thread.join()
        self.engine.sleep(0.01)
        self.assertTrue(
            eventually(lambda: self.engine.sleep(0.01) or self.engine.usage()["lent"] == 0)
        )
        self.assertEqual(self.engine.usage()["calls"], 0)

    def test_closed(self):
        pending = self.client.later.slow(0.1)
        self.engine.close()
        self.assertTrue(self.engine.closed)
        self.engine.close()
        for what in (pending.result, lambda: self.client.add(1, 1), lambda: self.engine.lend(b"")):
            with self.assertRaises(petasos.EngineClosedError):
                what()

    def test_peers_learn_at_once_that_it_is_closed(self):
        own = petasos.Engine(self.URL)
        own.serve(Recorder())
        client = self.engine.client(Recorder, own.address)
        waiting = client.later.echo(1)
        while not waiting.done(0.01):
            own.sleep(0.01)
        self.assertEqual(waiting.result(), 1)
        # Objects of the closed engine remain, and its endpoint does not.
        kept = (own.client(Recorder, self.server.address), own.lend(bytearray(10_000), "w"))
        lost = client.later.echo(2)
        own.close()
        before = time.monotonic()
        with self.assertRaises(petasos.PeerLost):
            lost.result()
        self.assertLess(time.monotonic() - before, 5)
        del kept

    def test_services_that_cannot_be(self):
        with self.assertRaisesRegex(TypeError, "no service"):
            self.engine.serve(object())
        with self.assertRaisesRegex(TypeError, "no methods"):
            petasos.service(type("Empty", (), {}))

        @petasos.service
        class Coroutine:
            async def wait(self): ...

        with self.assertRaisesRegex(TypeError, "aio"):
            self.engine.serve(Coroutine())
        with self.assertRaisesRegex(TypeError, r"\*args"):

            @petasos.service
            class Star:
                def star(self, *args): ...

    def test_a_handler_that_calls(self):
        server = self.server

        @petasos.service
        class Proxy:
            def __init__(self, client):
                self.client = client

            def add(self, a: int, b: int) -> int:
                return self.client.add(a, b)

        self.engine.serve(Proxy(self.client))
        own = self.engine.client(Proxy, self.engine.address)
        self.assertEqual(own.add(1, 2), 3)
        self.assertEqual([p.result() for p in [own.later.add(n, 1) for n in range(20)]],
                         [n + 1 for n in range(20)])
        del server


class OverTcp(Calls):
    URL = "tcp://127.0.0.1:0"


class WithinTheProcess(unittest.TestCase):
    def test_calls_to_oneself(self):
        with petasos.Engine("self://*") as engine:
            engine.serve(Recorder())
            client = engine.client(Recorder, engine.address)
            self.assertEqual(client.add(20, 22), 42)
            with self.assertRaises(KeyError):
                client.fail("key")


class Opening(unittest.TestCase):
    def test_what_is_wrong_is_said(self):
        with self.assertRaisesRegex(petasos.OpenError, "smoke"):
            petasos.Engine("smoke://signals")
        with self.assertRaises(ValueError):
            petasos.Engine("shm://*", timeout=-1)
        with self.assertRaises(ValueError):
            petasos.Engine("shm://*", refused="maybe")
        with petasos.Engine("shm://*") as engine, self.assertRaises(petasos.AddressError):
            engine.client(Recorder, "nowhere")
        with self.assertRaises(petasos.NoJobError):
            petasos.job()

    def test_a_peer_that_is_not_there(self):
        with petasos.Engine("shm://*", refused="fail") as engine:
            client = engine.client(Recorder, "shm://petasos-not-there-at-all")
            with self.assertRaises(ConnectionError) as caught:
                client.add(1, 1)
            self.assertIsInstance(caught.exception, petasos.PeerLost)
            self.assertEqual(caught.exception.peer, "shm://petasos-not-there-at-all")

    def test_interrupts_end_a_wait(self):
        program = """
            import petasos
            with petasos.Engine("shm://*") as engine:
                try:
                    print("ready", flush=True)
                    engine.run()
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
        """
        import signal

        with Process(program) as process:
            self.assertEqual(process.line(), "ready")
            process.signal(signal.SIGINT)
            self.assertEqual(process.line(), "interrupted")
            status, _, error = process.wait()
            self.assertEqual((status, error), (0, ""))


if __name__ == "__main__":
    unittest.main()
