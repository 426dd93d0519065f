//! What arrays are made of: kinds of numbers, as buffers, numpy and the wire name them.

/// A kind of number in memory: little-endian, as all machines that Petasos runs on have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    /// `b`ool, `i`nteger, `u`nsigned, `f`loat, `c`omplex: as numpy's `dtype.kind`.
    pub(crate) kind: u8,
    /// Its length in bytes.
    pub(crate) size: u8,
}

/// Kind, size, format of the buffer protocol (with the terminator), numpy's name.
const KNOWN: [(u8, u8, &str, &str); 14] = [
    (b'b', 1, "?\0", "|b1"),
    (b'i', 1, "b\0", "|i1"),
    (b'i', 2, "h\0", "<i2"),
    (b'i', 4, "i\0", "<i4"),
    (b'i', 8, "q\0", "<i8"),
    (b'u', 1, "B\0", "|u1"),
    (b'u', 2, "H\0", "<u2"),
    (b'u', 4, "I\0", "<u4"),
    (b'u', 8, "Q\0", "<u8"),
    (b'f', 2, "e\0", "<f2"),
    (b'f', 4, "f\0", "<f4"),
    (b'f', 8, "d\0", "<f8"),
    (b'c', 8, "Zf\0", "<c8"),
    (b'c', 16, "Zd\0", "<c16"),
];

impl Element {
    pub(crate) const BYTE: Element = Element { kind: b'u', size: 1 };

    /// If there is such a number.
    pub(crate) fn new(kind: u8, size: u8) -> Option<Element> {
        let known = KNOWN.iter().any(|(k, s, ..)| (*k, *s) == (kind, size));
        known.then_some(Element { kind, size })
    }

    /// From the format of a buffer; `None` if it is none of these, or of the other byte order.
    pub(crate) fn of_format(format: &str, size: usize) -> Option<Element> {
        let size = u8::try_from(size).ok()?;
        let bare = format.trim_start_matches(['@', '=', '<', '|', '^']);
        let bare = if size == 1 { bare.trim_start_matches(['>', '!']) } else { bare };
        let kind = match bare {
            "?" => b'b',
            "b" | "h" | "i" | "l" | "q" | "n" => b'i',
            "B" | "H" | "I" | "L" | "Q" | "N" | "c" => b'u',
            "e" | "f" | "d" => b'f',
            "Zf" | "Zd" => b'c',
            _ => return None,
        };
        Element::new(kind, size)
    }

    /// From numpy's name, as `<f8` or `f8`.
    pub(crate) fn of_name(name: &str) -> Option<Element> {
        let bare = name.trim_start_matches(['<', '|', '=']);
        let kind = *bare.as_bytes().first()?;
        Element::new(kind, bare.get(1..)?.parse().ok()?)
    }

    fn known(self) -> (&'static str, &'static str) {
        let of = |known: &&(u8, u8, &str, &str)| (known.0, known.1) == (self.kind, self.size);
        let found = KNOWN.iter().find(of).expect("only such are made");
        (found.2, found.3)
    }

    /// The format of the buffer protocol.
    pub(crate) fn format(self) -> &'static std::ffi::CStr {
        std::ffi::CStr::from_bytes_with_nul(self.known().0.as_bytes()).expect("it ends so")
    }

    /// Numpy's name.
    pub(crate) fn name(self) -> &'static str {
        self.known().1
    }
}

/// The most dimensions of an array, as of the buffer protocol.
pub(crate) const DIMENSIONS: usize = 64;

/// How many bytes an array has; `None` if that is more than there can be, or if its strides are,
/// which are not those of nothing where it has no numbers.
pub(crate) fn bytes(element: Element, shape: &[u64]) -> Option<usize> {
    let mut reached = u64::from(element.size);
    for len in shape {
        reached = reached.checked_mul((*len).max(1))?;
    }
    let reached = isize::try_from(reached).ok()?;
    Some(if shape.contains(&0) { 0 } else { reached.unsigned_abs() })
}
