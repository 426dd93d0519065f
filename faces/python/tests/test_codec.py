"""Encoding and decoding, and what hostile bytes do."""

import array
import dataclasses
import math
import random
import struct
import unittest

import petasos
from petasos import _native
from petasos._codec import converter, describe

from .common import needs_numpy, numpy


def through(value):
    return _native.decode(_native.encode(value))


class RoundTrips(unittest.TestCase):
    def test_values_come_back(self):
        values = [
            None, True, False, 0, 1, -1, 127, 128, -32, -33, 255, 256, 65535, 65536, -(2**31),
            2**32, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, -0.0, 1.5, math.inf, "", "a", "ü" * 40,
            "x" * 300, "y" * 70_000, b"", b"\x00\xff", b"z" * 300, b"z" * 70_000, [], [1, [2, [3]]],
            list(range(20)), list(range(70_000)), {}, {"a": 1, 2: "b", b"c": None, True: [False]},
            {str(n): n for n in range(70_000)},
        ]  # fmt: skip
        for value in values:
            with self.subTest(value=str(value)[:40]):
                self.assertEqual(through(value), value)
                self.assertIs(type(through(value)), type(value))
        self.assertTrue(math.isnan(through(math.nan)))

    def test_others_come_as_what_is_nearest(self):
        @dataclasses.dataclass
        class Point:
            x: int
            y: float

        self.assertEqual(through((1, (2,))), [1, [2]])
        self.assertEqual(through(bytearray(b"ab")), b"ab")
        self.assertEqual(through(Point(1, 2.5)), {"x": 1, "y": 2.5})

    def test_arrays(self):
        for kind in "bBhHiIlLqQfd":
            sent = array.array(kind, [1, 2, 100])
            got = through(sent)
            self.assertEqual(list(got), [1, 2, 100])
            self.assertEqual(memoryview(got).itemsize, sent.itemsize)
        self.assertEqual(bytes(through(memoryview(b"abc"))), b"abc")
        # Not contiguous.
        self.assertEqual(list(through(memoryview(b"abcdef")[::2])), list(b"ace"))
        got = memoryview(through(array.array("d", [1.0])))
        self.assertFalse(got.readonly)

    @needs_numpy
    def test_arrays_of_numpy(self):
        kinds = "?bhiqBHIQefdFD"
        for kind in kinds:
            for shape in [(), (0,), (3,), (2, 3), (2, 0, 3), (1, 1, 1, 4)]:
                sent = numpy.ones(shape, dtype=kind)
                got = through(sent)
                if shape == () and kind not in "DF":
                    # As numbers of numpy's.
                    self.assertEqual(got, sent.item())
                    continue
                self.assertEqual((got.shape, got.dtype), (sent.shape, sent.dtype))
                numpy.testing.assert_array_equal(got, sent)
                self.assertTrue(got.flags.writeable and got.flags.c_contiguous)
        matrix = numpy.arange(24.0).reshape(2, 3, 4)
        for view in (matrix.T, matrix[:, ::2], matrix[::-1], matrix[..., 1]):
            numpy.testing.assert_array_equal(through(view), view)
        self.assertEqual(through({"n": numpy.int64(7), "x": numpy.float32(0.5)}), {"n": 7, "x": 0.5})

    def test_what_does_not_travel(self):
        class Thing:
            pass

        for value in (Thing(), {1, 2}, Thing, len, object(), 1j):
            with self.assertRaisesRegex(TypeError, "does not travel"):
                _native.encode(value)
        for value in (2**64, -(2**63) - 1):
            with self.assertRaises(OverflowError):
                _native.encode(value)
        with self.assertRaises(TypeError):
            _native.encode("\ud800")
        with self.assertRaises(petasos.TooLarge):
            _native.encode([0] * (1 << 20))
        deep = []
        for _ in range(64):
            deep = [deep]
        with self.assertRaisesRegex(petasos.TooLarge, "nested"):
            _native.encode(deep)
        ring = []
        ring.append(ring)
        with self.assertRaises(petasos.TooLarge):
            _native.encode(ring)

    @needs_numpy
    def test_numbers_that_do_not_travel(self):
        for kind in (">f8", "O", "U3", "M8[s]", "longdouble"):
            with self.subTest(kind=kind), self.assertRaises((TypeError, ValueError, BufferError)):
                _native.encode(numpy.zeros(3, dtype=kind))


class Hostile(unittest.TestCase):
    """Bytes of another process: whatever they are, they are a value or a `DecodeError`, in memory of
    about their length."""

    def refused(self, data):
        with self.assertRaises(petasos.DecodeError):
            _native.decode(data)

    def test_lengths_that_lie(self):
        for head in (b"\xdd", b"\xdf", b"\xdb", b"\xc6"):
            self.refused(head + b"\xff\xff\xff\xff")
            self.refused(head + b"\x7f\xff\xff\xff" + b"\x00" * 100)
        self.refused(b"\xc9\xff\xff\xff\xff\x01")
        self.refused(b"\xdc\xff\xff\xc0")
        self.refused(b"")
        self.refused(b"\xc1")
        self.refused(b"\xc0\xc0")
        self.refused(b"\xa1\xff")

    def test_nesting(self):
        for head in (b"\x91", b"\x81\xc0"):
            self.refused(head * 65 + b"\xc0")
            self.refused(head * 100_000 + b"\xc0")
        self.assertEqual(_native.decode(b"\x91" * 63 + b"\x90")[0][0] is None, False)

    def test_too_many_values(self):
        self.refused(b"\xdd" + struct.pack(">I", 1 << 20) + b"\xc0" * (1 << 20))
        many = (1 << 20) - 1
        got = _native.decode(b"\xdd" + struct.pack(">I", many) + b"\xc0" * many)
        self.assertEqual(len(got), many)

    def test_keys(self):
        self.refused(b"\x81\x90\xc0")
        self.refused(b"\x81\x80\xc0")

    def test_arrays_that_lie(self):
        def extension(kind, payload):
            return b"\xc9" + struct.pack(">Ib", len(payload), kind) + payload

        def shaped(kind, size, *shape, data=b""):
            head = bytes([ord(kind), size, len(shape)])
            return head + b"".join(struct.pack("<Q", n) for n in shape) + data

        good = extension(1, shaped("f", 8, 2, data=b"\0" * 16))
        self.assertEqual(list(_native.decode(good)), [0.0, 0.0])
        for payload in (
            b"",
            b"f",
            b"f\x08\x01",
            shaped("f", 3, 1, data=b"\0" * 3),
            shaped("O", 8, 1, data=b"\0" * 8),
            shaped("f", 8, 2, data=b"\0" * 15),
            shaped("f", 8, 2, data=b"\0" * 17),
            shaped("f", 8, 1 << 61, data=b""),
            shaped("f", 8, 1 << 32, 1 << 32, data=b""),
            # Without a number, and with strides or lengths that are none.
            shaped("u", 1, 0, 1 << 62, 1 << 62),
            shaped("u", 1, 0, (1 << 64) - 1),
            shaped("u", 1, (1 << 64) - 1, 0),
            shaped("u", 1, *([1] * 65), data=b"\0"),
        ):
            self.refused(extension(1, payload))
        # Lent memory is of an engine, and of no other kind there is any.
        for kind in (2, 3, 4, -1, 127):
            self.refused(extension(kind, b"\0" * 40))

    def test_random_and_mutated_bytes(self):
        rng = random.Random(26)
        samples = [
            _native.encode(value)
            for value in (
                [1, "text", b"bytes", {"a": [None, True, 2.5]}, -7],
                {"list": list(range(50)), "text": "ü" * 50},
                array.array("d", range(10)),
                [array.array("i", range(5)), [[[[["deep"]]]]]],
            )
        ]
        values = 0
        for _ in range(30_000):
            if rng.random() < 0.3:
                data = rng.randbytes(rng.randrange(64))
            else:
                mutated = bytearray(rng.choice(samples))
                for _ in range(rng.randrange(1, 4)):
                    at = rng.randrange(len(mutated))
                    kind = rng.randrange(3)
                    if kind == 0:
                        mutated[at] = rng.randrange(256)
                    elif kind == 1:
                        del mutated[at:]
                        break
                    else:
                        mutated[at:at] = rng.randbytes(rng.randrange(1, 9))
                data = bytes(mutated)
            try:
                _native.decode(data)
                values += 1
            except petasos.DecodeError:
                pass
        self.assertGreater(values, 1000)


@dataclasses.dataclass
class Point:
    x: int
    y: "float" = 0.0


@dataclasses.dataclass
class Path:
    name: str
    points: "list[Point]"
    end: "Point | None" = None


class Annotations(unittest.TestCase):
    def test_dataclasses_are_made_where_the_annotation_says_so(self):
        made = converter(Path)({"name": "p", "points": [{"x": 1}, {"x": 2, "y": 3.0}], "end": None})
        self.assertEqual(made, Path("p", [Point(1), Point(2, 3.0)]))
        self.assertEqual(converter(Path)(through(made)), made)
        for wrong in ({}, {"name": "p", "points": [], "more": 1}, [], {"name": 1, "points": [{}]}):
            with self.subTest(wrong=wrong), self.assertRaises(petasos.BadArguments):
                converter(Path)(wrong)
        self.assertIsNone(converter(int))

    def test_descriptions_are_the_same_in_all_versions(self):
        from typing import Any, Dict, List, Optional, Union

        self.assertEqual(describe(Optional[List[Dict[str, int]]]), "None|list[dict[str,int]]")
        self.assertEqual(describe(Union[bytes, bytearray]), "bytes")
        self.assertEqual(describe(Any), "any")
        text = "Path{name:str,points:list[Point{x:int,y:float}],end:None|Point{x:int,y:float}}"
        self.assertEqual(describe(Path), text)


if __name__ == "__main__":
    unittest.main()
