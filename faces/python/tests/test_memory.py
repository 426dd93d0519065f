"""Memory: none is lost over time, and none is freed that the network uses."""

import gc
import unittest

import petasos

from .common import Process, resident, run
from .test_bulk import Mover


class Flat(unittest.TestCase):
    def setUp(self):
        mover = Mover()
        self.server = petasos.Server(mover, url="shm://*")
        mover.engine = self.server._engine
        self.engine = petasos.Engine("shm://*")
        self.client = self.engine.client(Mover, self.server.address)

    def tearDown(self):
        self.engine.close()
        self.server.close()

    def stays_flat(self, step, times):
        """Runs a step so many times: memory grows by less than 4 MiB after the first tenth."""
        for _ in range(times // 10):
            step()
        gc.collect()
        before = resident()
        for _ in range(times - times // 10):
            step()
        gc.collect()
        self.assertLess(resident() - before, 4 << 20)
        self.assertEqual(self.engine.usage()["operations"], 0)
        self.assertEqual(self.engine.usage()["lent"], 0)

    def test_small_transfers(self):
        into = bytearray(1000)
        remote = self.client.lend_back(1024)
        view = memoryview(into)
        self.stays_flat(lambda: remote.pull_into(view[:1000]), 100_000)

    def test_lending(self):
        data = bytearray(1000)

        def step():
            with self.engine.lend(data):
                pass

        self.stays_flat(step, 20_000)

    def test_calls_and_errors(self):
        other = self.engine.client(Mover, self.server.address)

        def step():
            with self.assertRaises(IndexError):
                other.use()

        self.stays_flat(step, 5_000)

    def test_operations_that_are_dropped(self):
        remote = self.client.lend_back(1 << 16)

        def step():
            remote.begin_pull_into(bytearray(1 << 16))
            self.client.later.drop()
            self.client.drop()

        self.stays_flat(step, 5_000)

    def test_arrays(self):
        def step():
            with self.engine.array(1000) as shared:
                self.client.peak(shared)
            self.client.drop()

        self.stays_flat(step, 2_000)


SERVER = """
    import sys, petasos
    from petasos import aio

    @petasos.service
    class Source:
        def __init__(self, engine):
            self.engine, self.memory = engine, bytearray(512 << 20)
        def lend(self):
            self.lent = self.engine.lend(self.memory, "rw")
            return self.lent

    engine = petasos.Engine(sys.argv[1])
    engine.serve(Source(engine))
    print(engine.address, flush=True)
    engine.run()
"""

SOURCE = """
    import asyncio, gc, os, sys, threading, petasos

    @petasos.service
    class Source:
        def lend(self): ...

    url, address = sys.argv[1:]
"""


class UnderWay(unittest.TestCase):
    """Programs that end, or let go, with operations under way."""

    URL = "shm://*"

    def ends_well(self, program):
        with Process(SERVER, self.URL) as server:
            import textwrap

            whole = textwrap.dedent(SOURCE) + textwrap.dedent(program)
            status, out, error = run(whole, self.URL, server.line())
            self.assertEqual((status, out), (0, "end\n"), error)
            self.assertEqual(error, "")

    def test_exit(self):
        self.ends_well("""
            engine = petasos.Engine(url)
            remote = engine.client(Source, address).lend()
            into = bytearray(512 << 20)
            pulls = [remote.begin_pull_into(into) for _ in range(3)]
            lent = engine.lend(bytearray(1 << 20), "w")
            engine.sleep(0.001)
            print("end")
        """)

    def test_exit_without_a_word(self):
        self.ends_well("""
            engine = petasos.Engine(url)
            remote = engine.client(Source, address).lend()
            into = bytearray(512 << 20)
            pull = remote.begin_pull_into(into)
            engine.sleep(0.001)
            del engine, remote, pull, into
            print("end")
        """)

    def test_exit_by_an_exception(self):
        self.ends_well("""
            import atexit
            engine = petasos.Engine(url)
            remote = engine.client(Source, address).lend()
            pull = remote.begin_pull_into(bytearray(512 << 20))
            print("end")
            raise SystemExit(0)
        """)

    def test_drop(self):
        self.ends_well("""
            with petasos.Engine(url) as engine:
                remote = engine.client(Source, address).lend()
                for _ in range(5):
                    pull = remote.begin_pull_into(bytearray(b"\\x01" * (64 << 20)))
                    pull.done(0.001)
                    del pull
                    gc.collect()
                    junk = [bytearray(1 << 20) for _ in range(64)]
                    engine.sleep(0.001)
                    assert not any(any(block) for block in junk[:4])
            print("end")
        """)

    def test_close_with_operations_under_way(self):
        self.ends_well("""
            into = bytearray(512 << 20)
            with petasos.Engine(url) as engine:
                remote = engine.client(Source, address).lend()
                pull = remote.begin_pull_into(into)
                engine.sleep(0.001)
            try:
                pull.result()
                raise AssertionError
            except petasos.EngineClosedError:
                pass
            into.clear()
            print("end")
        """)

    def test_cancel_in_asyncio(self):
        self.ends_well("""
            async def main():
                async with petasos.aio.Engine(url) as engine:
                    remote = await engine.client(Source, address).lend()
                    for _ in range(3):
                        into = bytearray(256 << 20)
                        task = asyncio.create_task(remote.pull_into(into))
                        await asyncio.sleep(0.001)
                        task.cancel()
                        try:
                            await task
                        except asyncio.CancelledError:
                            pass
                        del into
            asyncio.run(main())
            print("end")
        """)

    def test_exit_of_a_thread_with_an_engine(self):
        self.ends_well("""
            def work():
                engine = petasos.Engine(url)
                remote = engine.client(Source, address).lend()
                kept.append((engine, remote.begin_pull_into(bytearray(64 << 20))))
            kept = []
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            try:
                kept[0][0].usage()
                raise AssertionError
            except petasos.WrongThreadError:
                pass
            kept.clear()
            gc.collect()
            print("end")
        """)


class UnderWayOverTcp(UnderWay):
    URL = "tcp://127.0.0.1:0"


if __name__ == "__main__":
    unittest.main()
