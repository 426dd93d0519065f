"""Memory that is lent, pulled, pushed, and read in place."""

import array
import asyncio
import gc
import threading
import unittest

import petasos
from petasos import aio

from .common import eventually, needs_numpy, numpy


@petasos.service
class Mover:
    def __init__(self):
        self.kept = []

    def total(self, data: petasos.Remote) -> int:
        into = bytearray(data.nbytes)
        data.pull_into(into)
        return sum(into)

    def by_blocks(self, data: petasos.Remote, size: int, depth: int) -> int:
        return sum(sum(block) for block in data.blocks(size, depth))

    def fill(self, into: petasos.Remote, byte: int) -> None:
        into.push_from(bytes([byte]) * into.nbytes)

    def part(self, data: petasos.Remote, offset: int, length: int) -> bytes:
        return bytes(data.pull(offset, length))

    def release(self, data: petasos.Remote) -> int:
        data.pull()
        data.release()
        return data.nbytes

    def keep(self, data: petasos.Remote) -> str:
        self.kept.append(data)
        return data.access

    def use(self) -> bytes:
        return bytes(self.kept.pop().pull())

    def beyond(self, data: petasos.Remote) -> None:
        data.pull_into(bytearray(10), offset=data.nbytes - 5)

    def read_only(self, data: petasos.Remote) -> None:
        data.push_from(b"x" * data.nbytes)

    def peak(self, numbers: petasos.Loan) -> "tuple":
        view, in_place = numbers.borrow()
        self.kept.append(view)
        view = memoryview(view)
        if in_place and not view.readonly:
            raise AssertionError("memory of others may only be read")
        flat = view.cast("B").cast(view.format) if view.ndim != 1 else view
        return max(flat), in_place, list(view.shape), numbers.dtype

    def drop(self) -> None:
        self.kept.clear()

    def ramp(self, length: int):
        shared = self.engine.array(length, "f8")
        memoryview(shared.data)[:] = array.array("d", range(length))
        self.kept.append(shared)
        return shared

    def lend_back(self, length: int):
        lent = self.engine.lend(bytes(range(256)) * (length // 256))
        self.kept.append(lent)
        return lent


class Bulk(unittest.TestCase):
    URL = "shm://*"
    IN_PLACE = True

    def setUp(self):
        self.served = Mover()
        self.server = petasos.Server(self.served, url=self.URL)
        self.served.engine = self.server._engine
        self.engine = petasos.Engine(self.URL)
        self.client = self.engine.client(Mover, self.server.address)

    def tearDown(self):
        self.engine.close()
        self.server.close()

    def nothing_is_lent(self):
        return eventually(lambda: self.engine.sleep(0.001) or self.engine.usage()["lent"] == 0)

    def test_pull(self):
        data = bytearray(b"\x01" * 1_000_000)
        for memory in (data, memoryview(data), bytes(data), array.array("b", data)):
            with self.engine.lend(memory) as lent:
                self.assertEqual(lent.nbytes, 1_000_000)
                self.assertEqual(self.client.total(lent), 1_000_000)
                self.assertEqual(self.client.by_blocks(lent, 65_537, 3), 1_000_000)
                self.assertEqual(self.client.by_blocks(lent, 1 << 21, 1), 1_000_000)
        # Nothing exports it any more.
        data.clear()
        self.assertEqual(self.engine.usage()["lent"], 0)

    def test_lengths(self):
        for length in (0, 1, 255, 256, 257, 4096, 100_003):
            data = bytes(n % 251 for n in range(length))
            with self.engine.lend(data) as lent:
                self.assertEqual(self.client.total(lent), sum(data))
                if length:
                    self.assertEqual(self.client.part(lent, length - 1, 1), data[-1:])
            into = bytearray(length)
            with self.engine.lend(into, "w") as lent:
                self.client.fill(lent, 7)
            self.assertEqual(into, b"\x07" * length)

    def test_push(self):
        into = bytearray(3_000_000)
        with self.engine.lend(into, "rw") as lent:
            self.client.fill(lent, 9)
            self.assertEqual(self.client.total(lent), 9 * len(into))
        self.assertEqual(into, b"\x09" * 3_000_000)
        into.clear()

    def test_memory_stays_exported_while_it_is_lent(self):
        data = bytearray(100_000)
        lent = self.engine.lend(data)
        with self.assertRaises(BufferError):
            data.clear()
        self.assertEqual(self.client.keep(lent), "r")
        del lent
        gc.collect()
        self.assertTrue(self.nothing_is_lent())
        data.clear()
        with self.assertRaisesRegex(petasos.RemoteError, "TransferError"):
            self.client.use()

    def test_memory_that_nothing_else_holds(self):
        self.client.keep(self.engine_lent())
        gc.collect()
        junk = [bytearray(b"\xee" * 100_000) for _ in range(20)]
        self.assertEqual(self.client.use(), b"\x05" * 100_000)
        del junk

    def engine_lent(self):
        self.lent = self.engine.lend(bytearray(b"\x05" * 100_000))
        return self.lent

    def test_rights_and_bounds(self):
        with self.engine.lend(bytearray(1000)) as lent:
            for call in (self.client.read_only, self.client.beyond):
                with self.assertRaisesRegex(petasos.RemoteError, "TransferError"):
                    call(lent)
        with self.assertRaises(BufferError):
            self.engine.lend(b"constant", "w")
        with self.assertRaises((BufferError, TypeError)):
            self.engine.lend(7)
        with self.assertRaises(BufferError):
            self.engine.lend(memoryview(bytearray(100))[::2])
        with self.assertRaises(ValueError):
            self.engine.lend(bytearray(1), "x")

    def test_memory_is_free_before_the_answer(self):
        data = bytearray(1_000_000)
        lent = self.engine.lend(data)
        pending = self.client.later.release(lent)
        lent.released()
        data.clear()
        self.assertEqual(pending.result(), 1_000_000)

    def test_a_result_may_be_lent_memory(self):
        remote = self.client.lend_back(1 << 20)
        self.assertIsInstance(remote, petasos.Remote)
        into = bytearray(1 << 20)
        remote.pull_into(into)
        self.assertEqual(into[:512], bytes(range(256)) * 2)
        self.assertEqual(sum(len(block) for block in remote.blocks(1000, 2)), 1 << 20)
        pulls = [remote.begin_pull_into(memoryview(into)[n << 10 : (n + 1) << 10], n << 10)
                 for n in range(64)]
        for pull in pulls:
            pull.result()

    def test_arrays_are_read_where_they_lie(self):
        with self.engine.array((2, 50_000), "f8") as shared:
            view = memoryview(shared.data)
            self.assertEqual((view.shape, view.format), ((2, 50_000), "d"))
            self.assertEqual(shared.nbytes, 800_000)
            view[1, 49_999] = 7.5
            self.assertEqual(
                self.client.peak(shared), (7.5, self.IN_PLACE, [2, 50_000], "<f8")
            )
            # It may be changed, and lent again.
            view[0, 0] = 8.5
            self.assertEqual(self.client.peak(shared)[0], 8.5)
        self.assertEqual(view[0, 0], 8.5)
        self.client.drop()
        with self.assertRaisesRegex(petasos.RemoteError, "TransferError"):
            self.client.peak(shared)
        with self.engine.array(0, "i4") as empty:
            self.assertEqual(empty.nbytes, 0)
        for wrong in ("O", "f3", ">f8", "nonsense"):
            with self.assertRaises(ValueError):
                self.engine.array(3, wrong)
        with self.assertRaises((ValueError, OverflowError, petasos.TransferError, TypeError)):
            self.engine.array((1 << 40, 1 << 40), "f8")

    def test_arrays_of_the_service(self):
        loan = self.client.ramp(10_000)
        self.assertEqual((loan.shape, loan.dtype, loan.nbytes), ((10_000,), "<f8", 80_000))
        numbers, in_place = loan.borrow()
        self.assertEqual(in_place, self.IN_PLACE)
        del loan
        # What was borrowed stays.
        self.client.drop()
        gc.collect()
        self.assertEqual(memoryview(numbers)[9_999], 9_999.0)

    @needs_numpy
    def test_numpy(self):
        matrix = numpy.arange(1_000_000, dtype="u1").reshape(1000, 1000)
        with self.engine.lend(matrix) as lent:
            self.assertEqual(self.client.total(lent), int(matrix.sum()))
        with self.engine.lend(numpy.asfortranarray(matrix)) as lent:
            self.assertEqual(self.client.total(lent), int(matrix.sum()))
        into = numpy.zeros((100, 100), dtype="u1")
        with self.engine.lend(into, "w") as lent:
            self.client.fill(lent, 3)
        self.assertTrue((into == 3).all())
        with self.assertRaisesRegex(BufferError, "ascontiguousarray"):
            self.engine.lend(matrix[:, ::2])
        shared = self.engine.array((3, 4), numpy.float32)
        self.assertIsInstance(shared.data, numpy.ndarray)
        shared.data[:] = 2.0
        self.assertEqual(self.client.peak(shared)[0], 2.0)
        # DLPack, where numpy has it.
        if hasattr(numpy, "from_dlpack"):
            self.assertEqual(float(numpy.from_dlpack(shared.data).sum()), 24.0)

    def test_the_interpreter_goes_on_while_data_moves(self):
        steps, over = 0, threading.Event()

        def count():
            nonlocal steps
            while not over.is_set():
                steps += 1

        remote = self.client.lend_back(64 << 20)
        into = bytearray(64 << 20)
        thread = threading.Thread(target=count)
        thread.start()
        remote.pull_into(into)
        before = steps
        for _ in range(4):
            remote.pull_into(into)
        moved = steps - before
        over.set()
        thread.join()
        # Without the lock's release it would be a few thousand, of its switches.
        self.assertGreater(moved, 1000)


class OverTcp(Bulk):
    URL = "tcp://127.0.0.1:0"
    IN_PLACE = False


class OverAuto(Bulk):
    URL = "auto://*"


@petasos.service
class Waiter:
    def __init__(self):
        self.gate = asyncio.Event()
        self.began = asyncio.Event()

    async def total(self, data: petasos.Remote) -> int:
        into = bytearray(data.nbytes)
        await data.pull_into(into)
        return sum(into)

    async def blocks(self, data: petasos.Remote) -> int:
        total = 0
        async for block in data.blocks(1000, 3):
            total += sum(block)
        return total

    async def fill(self, into: petasos.Remote) -> None:
        await into.push_from(b"\x02" * into.nbytes)

    async def hold(self, data: petasos.Remote) -> None:
        self.began.set()
        await self.gate.wait()
        await data.pull_into(bytearray(data.nbytes))

    async def peak(self, numbers: petasos.Loan) -> float:
        view, _ = await numbers.borrow()
        return max(memoryview(view))


class InAsyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.waiter = Waiter()
        self.server = aio.Engine("shm://*")
        self.server.serve(self.waiter)
        self.engine = aio.Engine("shm://*")
        self.client = self.engine.client(Waiter, self.server.address)

    async def asyncTearDown(self):
        await self.engine.close()
        await self.server.close()

    async def test_transfers(self):
        data = bytearray(b"\x01" * 100_000)
        async with self.engine.lend(data) as lent:
            self.assertEqual(await self.client.total(lent), 100_000)
            self.assertEqual(await self.client.blocks(lent), 100_000)
            got = await asyncio.gather(*(self.client.total(lent) for _ in range(20)))
            self.assertEqual(got, [100_000] * 20)
        async with self.engine.lend(data, "w") as lent:
            await self.client.fill(lent)
        self.assertEqual(data, b"\x02" * 100_000)
        data.clear()
        async with self.engine.array(1000, "f8") as shared:
            memoryview(shared.data)[5] = 3.5
            self.assertEqual(await self.client.peak(shared), 3.5)

    async def test_memory_of_a_call_that_is_cancelled(self):
        data = bytearray(1_000_000)
        lent = self.engine.lend(data)
        task = asyncio.create_task(self.client.hold(lent))
        await asyncio.wait_for(self.waiter.began.wait(), 20)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        with self.assertRaises(BufferError):
            data.clear()
        await lent.close()
        data.clear()
        self.assertEqual(self.engine.usage()["lent"], 0)


if __name__ == "__main__":
    unittest.main()
