"""Helpers of the tests: processes that they start, what may be skipped."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
import unittest

NO_SKIP = os.environ.get("PETASOS_NO_SKIP") == "1"

try:
    import numpy
except ImportError:
    numpy = None

if NO_SKIP and numpy is None:
    raise RuntimeError("PETASOS_NO_SKIP=1, and numpy is not installed")

needs_numpy = unittest.skipIf(numpy is None, "numpy is not installed")


#: Warnings are errors, those of things that were not closed among them.
FLAGS = ("-X", "faulthandler", "-W", "error", "-W", "default::ResourceWarning")


class Process:
    """A program in Python that writes lines, and is killed in the end."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *FLAGS, "-c", textwrap.dedent(program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def line(self, patience: float = 60.0) -> str:
        """The next line that it writes."""
        out = self.process.stdout
        line = b""
        end = time.monotonic() + patience
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                raise TimeoutError(f"no line within {patience} s: {self.stop()}")
            byte = os.read(out.fileno(), 1)
            if not byte:
                raise EOFError(f"it ended: {self.stop()}")
            line += byte
        return line.decode().rstrip("\n")

    def say(self, line: str) -> None:
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, patience: float = 60.0) -> tuple[int, str, str]:
        """Its status, and what it wrote."""
        out, error = self.process.communicate(timeout=patience)
        return self.process.returncode, out.decode(), error.decode()

    def stop(self) -> str:
        """Kills it; what it wrote to the standard error."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        try:
            return self.process.communicate(timeout=30)[1].decode()
        except ValueError:
            return ""

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run(program: str, *arguments: str, patience: float = 120.0) -> tuple[int, str, str]:
    """Runs a program to its end."""
    with Process(program, *arguments) as process:
        return process.wait(patience)


def resident() -> int:
    """Resident memory of this process, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def eventually(condition, patience: float = 20.0) -> bool:
    """Whether it holds before long."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
