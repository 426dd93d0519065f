"""Adds up arrays of all ranks of a job, around a ring: each rank moves twice the array's length,
however many ranks there are.

    petasos run -n 4 python allreduce.py [NUMBERS]

Each rank lends its parts to its right neighbour, which pulls them: first the sums travel once
around the ring, then the results.
"""

import sys
import time

import numpy

import petasos


@petasos.service
class Ring:
    """The memory of a rank, and how far it is."""

    def __init__(self, engine, numbers):
        self.lent = engine.lend(numbers)
        self.steps = 0

    def memory(self):
        return self.lent

    def reached(self) -> int:
        """How many steps this rank has done: its parts of these may be pulled."""
        return self.steps


class AllReduce:
    """Sums over all ranks, in place, of one array that stays the same."""

    def __init__(self, job, engine, numbers):
        self.job, self.engine = job, engine
        self.numbers = numbers
        self.parts = numpy.array_split(numbers, job.size)
        self.starts = numpy.cumsum([0] + [part.nbytes for part in self.parts])
        self.into = numpy.empty_like(self.parts[0])
        self.ring = Ring(engine, numbers)
        engine.serve(self.ring)
        job.barrier()
        self.left = engine.client(Ring, job.peer((job.rank - 1) % job.size))
        self.memory = self.left.memory()

    def pull(self, part, into):
        """Pulls a part of the left neighbour's, when that has done as many steps as this rank."""
        while self.left.reached() < self.ring.steps:
            pass
        self.memory.pull_into(into, int(self.starts[part]))

    def run(self):
        size, rank = self.job.size, self.job.rank
        for step in range(size - 1):
            part = (rank - step - 1) % size
            into = self.into[: len(self.parts[part])]
            self.pull(part, into)
            self.parts[part] += into
            self.ring.steps += 1
        for step in range(size - 1):
            part = (rank - step) % size
            self.pull(part, self.parts[part])
            self.ring.steps += 1
        # Nobody changes its array while a neighbour still pulls from it.
        self.job.barrier()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with petasos.job() as job, job.engine() as engine:
        numbers = numpy.full(count, job.rank + 1.0)
        reduce = AllReduce(job, engine, numbers)
        began = time.perf_counter()
        reduce.run()
        took = time.perf_counter() - began
        expected = job.size * (job.size + 1) / 2
        if not (numbers == expected).all():
            raise SystemExit(f"rank {job.rank}: {numbers} is not {expected} everywhere")
        if job.rank == 0:
            print(f"{job.size} ranks, {numbers.nbytes >> 20} MiB each, {took * 1e3:.1f} ms")
        job.barrier()


if __name__ == "__main__":
    main()
