"""Processes that are killed, stopped, and forked."""

import multiprocessing
import os
import signal
import socket
import time
import unittest

import petasos

from .common import Process, run

SERVER = """
    import sys, time, petasos

    @petasos.service
    class Source:
        def __init__(self, engine):
            self.engine, self.memory = engine, bytearray(1 << 30)
        def lend(self):
            self.lent = self.engine.lend(self.memory)
            return self.lent
        def hang(self) -> None:
            print("hangs", flush=True)
            time.sleep(600)
        def ping(self) -> int:
            return 1

    engine = petasos.Engine(sys.argv[1])
    engine.serve(Source(engine))
    print(engine.address, flush=True)
    engine.run()
"""

#: What is promised on one node, and what a loaded machine may add.
PROMISE, SLACK = 0.1, 5.0


@petasos.service
class Source:
    def lend(self): ...

    def hang(self) -> None: ...

    def ping(self) -> int: ...


class Lost(unittest.TestCase):
    URL = "shm://*"

    def setUp(self):
        self.server = Process(SERVER, self.URL)
        self.address = self.server.line()
        self.engine = petasos.Engine(self.URL)
        self.client = self.engine.client(Source, self.address)

    def tearDown(self):
        self.engine.close()
        self.server.stop()

    def lost(self, under_way):
        before = time.monotonic()
        self.server.signal(signal.SIGKILL)
        with self.assertRaises(petasos.PeerLost) as caught:
            under_way()
        self.assertLess(time.monotonic() - before, PROMISE + SLACK)
        self.assertEqual(caught.exception.peer, self.address)
        self.assertIn(self.address, str(caught.exception))
        self.assertTrue(caught.exception.remedy)

    def test_killed_in_a_call(self):
        pending = self.client.later.hang()
        self.assertFalse(pending.done(0.05))
        self.assertEqual(self.server.line(), "hangs")
        self.lost(pending.result)

    def test_killed_in_a_transfer(self):
        remote = self.client.lend()
        into = bytearray(1 << 30)
        pulls = [remote.begin_pull_into(into) for _ in range(8)]
        pulls[0].done(0.01)

        def all_of_them():
            for pull in pulls:
                pull.result()

        self.lost(all_of_them)
        del pulls
        self.engine.sleep(0.05)
        self.assertEqual(self.engine.usage()["lent"], 0)
        into.clear()

    def test_a_server_that_is_started_again(self):
        fixed = f"shm://petasos-py-{os.getpid()}"
        if self.URL.startswith("tcp"):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                fixed = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with Process(SERVER, fixed) as first:
            first.line()
            client = self.engine.client(Source, fixed)
            self.assertEqual(client.ping(), 1)
            first.signal(signal.SIGKILL)
            first.wait()
        with self.assertRaises(petasos.PeerLost):
            client.ping()
        with Process(SERVER, fixed) as second:
            second.line()
            self.assertEqual(client.ping(), 1)

    def test_stopped(self):
        self.assertEqual(self.client.ping(), 1)
        self.server.signal(signal.SIGSTOP)
        before = time.monotonic()
        with self.assertRaises(petasos.DeadlineExceeded) as caught:
            self.client.with_(timeout=0.2).ping()
        passed = time.monotonic() - before
        self.assertTrue(0.19 < passed < 0.2 + SLACK, passed)
        self.assertEqual(caught.exception.peer, self.address)
        self.server.signal(signal.SIGCONT)
        self.assertEqual(self.client.ping(), 1)

    def test_stopped_while_it_has_memory(self):
        into = bytearray(1 << 20)
        lent = self.engine.lend(into, "w")
        self.assertEqual(self.client.ping(), 1)
        self.server.signal(signal.SIGSTOP)
        before = time.monotonic()
        lent.close()
        self.engine.close(0.5)
        self.assertLess(time.monotonic() - before, 10)
        self.server.signal(signal.SIGCONT)


class LostOverTcp(Lost):
    URL = "tcp://127.0.0.1:0"


# Where the module of the tests is.
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMITED = """
    import os, resource, sys, petasos
    sys.path.insert(0, sys.argv[2])
    from tests.test_processes import Source

    def refused(kind, act):
        try:
            act()
        except kind as error:
            return str(error)

    engine = petasos.Engine("shm://*")
    client = engine.client(Source, sys.argv[1])
    remote = client.lend()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), limits[1]))
    for act in (lambda: remote.pull(0, 200 << 20), lambda: engine.array((200 << 20,), "u1")):
        print("memory" in refused(petasos.TransferError, act))
    print(client.ping(), len(remote.pull(0, 1 << 20)))
    resource.setrlimit(resource.RLIMIT_AS, limits)
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    while refused(OSError, lambda: taken.append(os.dup(0))) is None:
        pass
    print("open files" in refused(petasos.OpenError, lambda: petasos.Engine("shm://*")))
    for number in taken:
        os.close(number)
    print(client.ping(), len(remote.pull(0, 200 << 20)))
"""


class UsedUp(unittest.TestCase):
    """Memory and descriptors: what is not there is an exception, and the engine goes on."""

    def test_memory_and_descriptors(self):
        with Process(SERVER, "shm://*") as server:
            status, out, error = run(LIMITED, server.line(), HERE)
        said = ["True", "True", "1 1048576", "True", "1 209715200"]
        self.assertEqual((status, out.splitlines()), (0, said), error)


def child_of_fork(queue):
    import petasos

    try:
        INHERITED.usage()
    except petasos.ForkedError as error:
        queue.put(type(error).__name__)
    # One of its own is as good as any.
    with petasos.Engine("shm://*") as engine:
        client = engine.client(Source, ADDRESS)
        queue.put(client.ping())


INHERITED = None
ADDRESS = ""


class Forks(unittest.TestCase):
    def test_multiprocessing(self):
        global INHERITED, ADDRESS
        with Process(SERVER, "shm://*") as server:
            ADDRESS = server.line()
            with petasos.Engine("shm://*") as INHERITED:
                client = INHERITED.client(Source, ADDRESS)
                self.assertEqual(client.ping(), 1)
                held = [client.later.ping(), INHERITED.lend(bytearray(10_000))]
                context = multiprocessing.get_context("fork")
                queue = context.Queue()
                child = context.Process(target=child_of_fork, args=(queue,))
                child.start()
                self.assertEqual(queue.get(timeout=60), "ForkedError")
                self.assertEqual(queue.get(timeout=60), 1)
                child.join(60)
                self.assertEqual(child.exitcode, 0)
                # The parent's goes on.
                self.assertEqual(client.ping(), 1)
                self.assertEqual(held[0].result(), 1)

    def test_a_child_that_exits_as_a_program_does(self):
        program = """
            import os, petasos
            engine = petasos.Engine("shm://*")
            lent = engine.lend(bytearray(100_000), "w")
            child = os.fork()
            if child == 0:
                try:
                    engine.usage()
                except petasos.ForkedError:
                    del engine, lent
                    raise SystemExit(7)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            engine.usage()
            engine.close()
            print(status)
        """
        self.assertEqual(run(program), (0, "7\n", ""))


class SubInterpreters(unittest.TestCase):
    def test_they_are_refused(self):
        program = """
            import petasos
            try:
                import _xxsubinterpreters as interpreters
            except ImportError:
                import _interpreters as interpreters
            other = interpreters.create()
            try:
                where = petasos.__path__[0].rpartition("/")[0]
                load = f"import sys; sys.path.insert(0, {where!r}); import petasos"
                refused = interpreters.run_string(other, load)
                print("refused" if "interpreter" in str(refused) else refused)
            except Exception as error:
                print("refused" if "interpreter" in str(error) else error)
        """
        status, out, error = run(program)
        self.assertEqual((status, out.strip()), (0, "refused"), error)


if __name__ == "__main__":
    unittest.main()
