"""The recipes of docs/python.md are programs, and run."""

import os
import pathlib
import re
import unittest

from .common import NO_SKIP, numpy, run

HERE = pathlib.Path(__file__).resolve()
DOCS = pathlib.Path(os.environ.get("PETASOS_DOCS", HERE.parents[3] / "docs"))
#: Recipes: those for all, those that need numpy, those that run in a job.
EXPECTED = {"": 8, "numpy": 2, "job": 1}


def recipes():
    text = (DOCS / "python.md").read_text()
    return re.findall(r"^```python ?(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Guide(unittest.TestCase):
    def test_recipes(self):
        found = recipes()
        kinds = [kind for kind, _ in found]
        self.assertEqual({kind: kinds.count(kind) for kind in EXPECTED}, EXPECTED)
        self.assertEqual(len(found), sum(EXPECTED.values()))
        ran = 0
        for kind, program in found:
            if kind == "job" or (kind == "numpy" and numpy is None):
                continue
            with self.subTest(program=program.splitlines()[:8]):
                self.assertEqual(run(program), (0, "", ""))
            ran += 1
        expected = EXPECTED[""] + (EXPECTED["numpy"] if numpy is not None else 0)
        self.assertEqual(ran, expected)
        if NO_SKIP:
            self.assertEqual(ran, 10)

    def test_the_readme(self):
        text = (HERE.parents[1] / "README.md").read_text()
        (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertEqual(run(program), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
