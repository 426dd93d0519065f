"""Ranks of a job."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import petasos

from .common import FLAGS, NO_SKIP, needs_numpy
from .test_guide import recipes

COMMAND = os.environ.get("PETASOS_COMMAND")
EXAMPLE = pathlib.Path(__file__).resolve().parents[1] / "examples" / "allreduce.py"
if COMMAND is None and NO_SKIP:
    raise RuntimeError("PETASOS_NO_SKIP=1, and PETASOS_COMMAND is not set")


def job(ranks, program, *arguments):
    """Runs a job of Python programs; its status and output."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(textwrap.dedent(program))
        file.flush()
        done = subprocess.run(
            [COMMAND, "run", "-n", str(ranks), sys.executable, *FLAGS, file.name, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr


@unittest.skipIf(COMMAND is None, "PETASOS_COMMAND is not set")
class Jobs(unittest.TestCase):
    def test_the_recipe(self):
        (program,) = [program for kind, program in recipes() if kind == "job"]
        self.assertEqual(job(3, program), (0, "", ""))

    def test_what_ranks_exchange(self):
        status, out, error = job(3, """
            import petasos
            with petasos.job() as job:
                assert petasos.job() is job
                assert job.size == 3 and len(job.peers) == 3 and job.restarts == 0
                values = [7, -1, 2**64 - 1, 1.5, "text", b"bytes", True]
                for at, value in enumerate(values):
                    job.put(f"key {at}", value)
                job.commit()
                job.fence()
                got = [job.get((job.rank + 1) % 3, f"key {at}") for at in range(len(values))]
                assert got == values and got[-1] is True, got
                for turn in range(3):
                    got = job.allgather([job.rank, turn, None])
                    assert got == [[rank, turn, None] for rank in range(3)], got
                if job.rank == 0:
                    job.publish("service", "somewhere")
                assert job.lookup("service", 20) == "somewhere"
                job.barrier()
                try:
                    job.lookup("nothing", 0.05)
                    raise AssertionError
                except petasos.JobError:
                    pass
                try:
                    job.put("key", object())
                    raise AssertionError
                except TypeError:
                    pass
                print("rank", job.rank)
        """)
        self.assertEqual(status, 0, error)
        self.assertEqual(sorted(out.splitlines()), ["rank 0", "rank 1", "rank 2"])

    def test_a_rank_that_is_lost_is_named(self):
        status, out, error = job(2, """
            import os, signal, petasos
            job = petasos.job()
            if job.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                job.barrier(20)
                print("came")
            except petasos.JobError as error:
                print("lost", flush=True)
        """)
        self.assertNotEqual(status, 0)
        self.assertNotIn("came", out)
        self.assertIn("1", error)

    def test_asyncio(self):
        status, out, error = job(2, """
            import asyncio, petasos

            @petasos.service
            class Rank:
                async def double(self, number: int) -> int:
                    return 2 * number

            async def main(job):
                async with job.aio_engine() as engine:
                    engine.serve(Rank())
                    other = engine.client(Rank, job.peer(1 - job.rank))
                    assert await other.double(21) == 42
                    await asyncio.get_running_loop().run_in_executor(None, job.barrier)

            with petasos.job() as job:
                asyncio.run(main(job))
        """)
        self.assertEqual((status, out, error), (0, "", ""))

    @needs_numpy
    def test_allreduce(self):
        for ranks in (1, 3, 4):
            done = subprocess.run(
                [COMMAND, "run", "-n", str(ranks), sys.executable, str(EXAMPLE), "100003"],
                capture_output=True,
                text=True,
                timeout=120,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"{ranks} ranks", done.stdout)


class Alone(unittest.TestCase):
    def test_no_job(self):
        with self.assertRaises(petasos.NoJobError) as caught:
            petasos.job()
        self.assertIn("petasos run", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
