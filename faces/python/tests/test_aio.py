"""Calls in asyncio."""

import asyncio
import gc
import threading
import unittest
from dataclasses import dataclass

import petasos
from petasos import aio

from .common import Process


@dataclass
class Pair:
    left: int
    right: int


@petasos.service
class Worker:
    def __init__(self):
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.forgotten = asyncio.Event()
        self.at_work = 0
        self.most = 0

    async def wait(self, seconds: float) -> float:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        self.began.set()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.at_work -= 1
        return seconds

    def add(self, a: int, b: int) -> int:
        return a + b

    async def swap(self, pair: Pair) -> Pair:
        return Pair(pair.right, pair.left)

    async def fail(self, call: petasos.Call) -> None:
        raise LookupError(call.method)

    @petasos.threaded
    def thread(self) -> str:
        return threading.current_thread().name

    @petasos.one_way
    async def forget(self) -> None:
        self.forgotten.set()


class Asyncio(unittest.IsolatedAsyncioTestCase):
    URL = "shm://*"

    async def asyncSetUp(self):
        self.worker = Worker()
        self.server = aio.Engine(self.URL)
        self.server.serve(self.worker)
        self.engine = aio.Engine(self.URL)
        self.client = self.engine.client(Worker, self.server.address)

    async def asyncTearDown(self):
        await self.engine.close()
        await self.server.close()

    async def test_calls(self):
        self.assertEqual(await self.client.add(1, 2), 3)
        self.assertEqual(await self.client.add(b=1, a=2), 3)
        self.assertEqual(await self.client.swap(Pair(1, 2)), Pair(2, 1))
        with self.assertRaisesRegex(LookupError, "Worker::fail"):
            await self.client.fail()
        self.assertNotIn("MainThread", await self.client.thread())
        with self.assertRaises(TypeError):
            self.client.add(1)

    async def test_many_at_a_time(self):
        got = await asyncio.gather(*(self.client.add(n, n) for n in range(1000)))
        self.assertEqual(got, [2 * n for n in range(1000)])
        got = await asyncio.gather(*(self.client.wait(0.05) for _ in range(100)))
        self.assertEqual(got, [0.05] * 100)
        self.assertEqual(self.worker.most, 100)
        self.assertEqual(self.engine.usage()["tasks"], 0)

    async def test_a_call_is_under_way_before_it_is_awaited(self):
        first = self.client.wait(0.0)
        await asyncio.wait_for(self.worker.began.wait(), 20)
        self.assertEqual(await first, 0.0)
        task = asyncio.create_task(self.client.add(2, 2))
        self.assertEqual(await task, 4)

    async def test_cancelling_the_task_cancels_the_handler(self):
        task = asyncio.create_task(self.client.wait(60))
        await asyncio.wait_for(self.worker.began.wait(), 20)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(self.worker.cancelled.wait(), 20)
        self.assertEqual(self.worker.at_work, 0)
        self.assertEqual(await self.client.add(1, 1), 2)
        self.assertEqual(self.engine.usage()["calls"], 0)

    async def test_a_call_that_is_dropped_is_cancelled(self):
        call = self.client.wait(60)
        await asyncio.wait_for(self.worker.began.wait(), 20)
        call.close()
        del call
        gc.collect()
        await asyncio.wait_for(self.worker.cancelled.wait(), 20)

    async def test_time_limits(self):
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(self.client.wait(60), 0.05)
        await asyncio.wait_for(self.worker.cancelled.wait(), 20)
        self.worker.cancelled.clear()
        with self.assertRaises(petasos.DeadlineExceeded) as caught:
            await self.client.with_(timeout=0.05).wait(60)
        self.assertEqual(caught.exception.peer, self.server.address)
        await asyncio.wait_for(self.worker.cancelled.wait(), 20)

    async def test_one_way(self):
        self.assertIsNone(self.client.forget())
        await asyncio.wait_for(self.worker.forgotten.wait(), 20)

    async def test_it_does_not_block(self):
        with self.assertRaisesRegex(RuntimeError, "event loop"):
            self.engine._native.calls(self.server.address, "Worker::add", 0, 0, None).call((1, 2))

    async def test_closing_ends_what_is_under_way(self):
        task = asyncio.create_task(self.client.wait(60))
        await asyncio.wait_for(self.worker.began.wait(), 20)
        await self.engine.close()
        with self.assertRaises(petasos.EngineClosedError):
            await task
        with self.assertRaises(petasos.EngineClosedError):
            await self.client.add(1, 1)
        await asyncio.wait_for(self.worker.cancelled.wait(), 20)

    async def test_blocking_clients_are_served(self):
        def use():
            with petasos.Engine(self.URL) as engine:
                client = engine.client(Worker, self.server.address)
                return client.add(1, 2), client.wait(0.01)

        loop = asyncio.get_running_loop()
        self.assertEqual(await loop.run_in_executor(None, use), (3, 0.01))

    async def test_calls_to_oneself(self):
        own = self.server.client(Worker, self.server.address)
        self.assertEqual(await own.add(1, 2), 3)
        self.assertEqual(await own.wait(0.01), 0.01)

    async def test_an_idle_engine_sleeps(self):
        await self.client.add(1, 1)
        runs = 0
        pump = self.server._driver.native.pump

        class Counting:
            def __getattr__(self, name):
                return getattr(native, name)

            def pump(self):
                nonlocal runs
                runs += 1
                return pump()

        native, self.server._driver.native = self.server._driver.native, Counting()
        await asyncio.sleep(0.5)
        self.server._driver.native = native
        self.assertLess(runs, 50)


class OverTcp(Asyncio):
    URL = "tcp://127.0.0.1:0"


class WithinTheProcess(Asyncio):
    URL = "self://*"

    async def test_blocking_clients_are_served(self):
        pass

    async def test_an_idle_engine_sleeps(self):
        pass


class Signals(unittest.TestCase):
    def test_a_loop_ends_with_calls_under_way(self):
        program = """
            import asyncio, petasos
            @petasos.service
            class Never:
                async def wait(self):
                    await asyncio.sleep(60)
            async def main():
                engine = petasos.aio.Engine("shm://*")
                engine.serve(Never())
                calls = [engine.client(Never, engine.address).wait() for _ in range(3)]
                tasks = [asyncio.create_task(call) for call in calls]
                await asyncio.sleep(0.05)
            asyncio.run(main())
            print("over", flush=True)
        """
        with Process(program) as process:
            self.assertEqual(process.line(), "over")
            status, _, error = process.wait()
            self.assertEqual((status, error), (0, ""))


if __name__ == "__main__":
    unittest.main()
