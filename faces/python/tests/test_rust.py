"""Services of Rust called from Python, and the other way round."""

import os
import subprocess
import threading
import unittest
from dataclasses import dataclass
from typing import List

import petasos

from .common import NO_SKIP

EXAMPLES = os.environ.get("PETASOS_PYTHON_EXAMPLES")
if EXAMPLES is None and NO_SKIP:
    raise RuntimeError("PETASOS_NO_SKIP=1, and PETASOS_PYTHON_EXAMPLES is not set")


@dataclass
class Summary:
    count: int
    total: float


@petasos.service
class Store:
    def __init__(self):
        self.data = {}

    def put(self, key: str, value: bytes) -> None:
        self.data[key] = value

    def get(self, key: str) -> bytes:
        return self.data[key]

    def summary(self, numbers: List[float]) -> Summary:
        return Summary(len(numbers), sum(numbers))

    def sum_bytes(self, data: petasos.Remote) -> int:
        return sum(sum(block) for block in data.blocks(1 << 16))


@unittest.skipIf(EXAMPLES is None, "PETASOS_PYTHON_EXAMPLES is not set")
class Rust(unittest.TestCase):
    URL = "shm://*"

    def test_python_calls_rust(self):
        server = subprocess.Popen(
            [f"{EXAMPLES}/store", "serve", self.URL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        timer = threading.Timer(60, server.kill)
        timer.start()
        try:
            address = server.stdout.readline().decode().strip()
            with petasos.Engine(self.URL) as engine:
                store = engine.client(Store, address)
                store.put("a", b"of Python")
                self.assertEqual(store.get("a"), b"of Python")
                # A method of Rust without a signature.
                self.assertEqual(store.summary([1.0, 2.0]), Summary(2, 3.0))
                with engine.lend(b"\x02" * (1 << 20)) as lent:
                    self.assertEqual(store.sum_bytes(lent), 2 << 20)
                with self.assertRaises(petasos.RemoteError) as caught:
                    store.get("none")
                self.assertEqual(caught.exception.text, "no such key: none")
                self.assertEqual(caught.exception.kind, "")

                @petasos.service(name="Store")
                class Other:
                    def get(self, key: int) -> bytes: ...

                with self.assertRaises(petasos.SignatureMismatch):
                    engine.client(Other, address).get(1)

                @petasos.service(name="Store")
                class Bare:
                    def get(self, key): ...

                self.assertEqual(engine.client(Bare, address).get("a"), b"of Python")
        finally:
            timer.cancel()
            server.kill()
            server.communicate()

    def test_rust_calls_python(self):
        with petasos.Server(Store(), url=self.URL) as server:
            done = subprocess.run(
                [f"{EXAMPLES}/store", "call", server.address],
                capture_output=True,
                text=True,
                timeout=60,
            )
        self.assertEqual((done.returncode, done.stdout), (0, "all as expected\n"), done.stderr)


class RustOverTcp(Rust):
    URL = "tcp://127.0.0.1:0"


if __name__ == "__main__":
    unittest.main()
