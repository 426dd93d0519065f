//! From bytes to Python objects. The bytes are another process's: each length is checked before
//! anything is made, nesting and the number of values are bounded, and nothing is executed.

use crate::{
    array::Loan,
    bulk::Remote,
    codec::{ARRAY, DEPTH, LENT, LOAN, VALUES, take_shape},
    errors, exposed, numbers,
    state::State,
};
use petasos::{
    BulkHandle, Region,
    wire::{Encoding, from_bytes},
};
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyMemoryView, PyString},
};
use rmp::Marker;
use std::rc::Rc;

/// With what descriptors are opened: those of the caller by the engine of its call.
pub(crate) struct Opener {
    pub(crate) state: Rc<State>,
    pub(crate) engine: petasos::Engine,
}

/// The value of all bytes.
pub(crate) fn decode<'py>(
    py: Python<'py>,
    bytes: &[u8],
    opener: Option<&Opener>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut decoder = Decoder { rest: bytes, left: VALUES, opener };
    let value = decoder.value(py, DEPTH)?;
    match decoder.rest.is_empty() {
        true => Ok(value),
        false => Err(bad("bytes follow the value")),
    }
}

/// The values of an array, as arguments.
pub(crate) fn arguments<'py>(
    py: Python<'py>,
    bytes: &[u8],
    opener: Option<&Opener>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut decoder = Decoder { rest: bytes, left: VALUES, opener };
    let count = match Marker::from_u8(decoder.byte()?) {
        Marker::FixArray(len) => usize::from(len),
        Marker::Array16 => usize::from(u16::from_be_bytes(decoder.number()?)),
        Marker::Array32 => u32::from_be_bytes(decoder.number()?) as usize,
        _ => return Err(bad("arguments are an array")),
    };
    decoder.holds(count)?;
    let values = (0..count).map(|_| decoder.value(py, DEPTH)).collect::<PyResult<Vec<_>>>()?;
    match decoder.rest.is_empty() {
        true => Ok(values),
        false => Err(bad("bytes follow the arguments")),
    }
}

fn bad(text: &str) -> PyErr {
    errors::plain("DecodeError", text)
}

struct Decoder<'a> {
    rest: &'a [u8],
    left: usize,
    opener: Option<&'a Opener>,
}

impl<'a> Decoder<'a> {
    fn bytes(&mut self, len: usize) -> PyResult<&'a [u8]> {
        let (bytes, rest) =
            self.rest.split_at_checked(len).ok_or_else(|| bad("the bytes end too early"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn number<const N: usize>(&mut self) -> PyResult<[u8; N]> {
        let (number, rest) =
            self.rest.split_first_chunk::<N>().ok_or_else(|| bad("the bytes end too early"))?;
        self.rest = rest;
        Ok(*number)
    }

    fn byte(&mut self) -> PyResult<u8> {
        self.number::<1>().map(|[byte]| byte)
    }

    /// Checks that so many values may follow: each has a byte at least.
    fn holds(&mut self, count: usize) -> PyResult<()> {
        if count > self.left {
            return Err(bad(&format!("more than {VALUES} values")));
        }
        match count <= self.rest.len() {
            true => Ok(()),
            false => Err(bad("the bytes end too early")),
        }
    }

    fn value<'py>(&mut self, py: Python<'py>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        self.left =
            self.left.checked_sub(1).ok_or_else(|| bad(&format!("more than {VALUES} values")))?;
        match Marker::from_u8(self.byte()?) {
            Marker::Null => Ok(py.None().into_bound(py)),
            Marker::True => true.into_bound_py_any(py),
            Marker::False => false.into_bound_py_any(py),
            Marker::FixPos(number) => number.into_bound_py_any(py),
            Marker::FixNeg(number) => number.into_bound_py_any(py),
            Marker::U8 => u8::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::U16 => u16::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::U32 => u32::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::U64 => u64::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::I8 => i8::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::I16 => i16::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::I32 => i32::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::I64 => i64::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::F32 => f32::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::F64 => f64::from_be_bytes(self.number()?).into_bound_py_any(py),
            Marker::FixStr(len) => self.text(py, usize::from(len)),
            Marker::Str8 => {
                let len = usize::from(self.byte()?);
                self.text(py, len)
            }
            Marker::Str16 => {
                let len = u16::from_be_bytes(self.number()?);
                self.text(py, usize::from(len))
            }
            Marker::Str32 => {
                let len = u32::from_be_bytes(self.number()?);
                self.text(py, len as usize)
            }
            Marker::Bin8 => {
                let len = usize::from(self.byte()?);
                Ok(PyBytes::new(py, self.bytes(len)?).into_any())
            }
            Marker::Bin16 => {
                let len = u16::from_be_bytes(self.number()?);
                Ok(PyBytes::new(py, self.bytes(usize::from(len))?).into_any())
            }
            Marker::Bin32 => {
                let len = u32::from_be_bytes(self.number()?);
                Ok(PyBytes::new(py, self.bytes(len as usize)?).into_any())
            }
            Marker::FixArray(len) => self.list(py, usize::from(len), depth),
            Marker::Array16 => {
                let len = u16::from_be_bytes(self.number()?);
                self.list(py, usize::from(len), depth)
            }
            Marker::Array32 => {
                let len = u32::from_be_bytes(self.number()?);
                self.list(py, len as usize, depth)
            }
            Marker::FixMap(len) => self.map(py, usize::from(len), depth),
            Marker::Map16 => {
                let len = u16::from_be_bytes(self.number()?);
                self.map(py, usize::from(len), depth)
            }
            Marker::Map32 => {
                let len = u32::from_be_bytes(self.number()?);
                self.map(py, len as usize, depth)
            }
            Marker::FixExt1 => self.extension(py, 1),
            Marker::FixExt2 => self.extension(py, 2),
            Marker::FixExt4 => self.extension(py, 4),
            Marker::FixExt8 => self.extension(py, 8),
            Marker::FixExt16 => self.extension(py, 16),
            Marker::Ext8 => {
                let len = usize::from(self.byte()?);
                self.extension(py, len)
            }
            Marker::Ext16 => {
                let len = u16::from_be_bytes(self.number()?);
                self.extension(py, usize::from(len))
            }
            Marker::Ext32 => {
                let len = u32::from_be_bytes(self.number()?);
                self.extension(py, len as usize)
            }
            Marker::Reserved => Err(bad("a byte that begins no value")),
        }
    }

    fn text<'py>(&mut self, py: Python<'py>, len: usize) -> PyResult<Bound<'py, PyAny>> {
        let text = std::str::from_utf8(self.bytes(len)?).map_err(|_| bad("text is not UTF-8"))?;
        Ok(PyString::new(py, text).into_any())
    }

    fn list<'py>(
        &mut self,
        py: Python<'py>,
        len: usize,
        depth: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let depth = deeper(depth)?;
        self.holds(len)?;
        let items = (0..len).map(|_| self.value(py, depth)).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, items)?.into_any())
    }

    fn map<'py>(
        &mut self,
        py: Python<'py>,
        len: usize,
        depth: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let depth = deeper(depth)?;
        self.holds(len.saturating_mul(2))?;
        let dict = PyDict::new(py);
        for _ in 0..len {
            let key = self.value(py, depth)?;
            let value = self.value(py, depth)?;
            if key.hash().is_err() {
                return Err(bad("a key that no dictionary takes"));
            }
            dict.set_item(key, value)?;
        }
        Ok(dict.into_any())
    }

    fn extension<'py>(&mut self, py: Python<'py>, len: usize) -> PyResult<Bound<'py, PyAny>> {
        let [kind] = self.number()?;
        let payload = self.bytes(len)?;
        match kind as i8 {
            ARRAY => array(py, payload),
            LENT => self.lent(py, payload),
            LOAN => self.loan(py, payload),
            other => Err(bad(&format!("an extension {other} that is unknown here"))),
        }
    }

    fn opener(&self) -> PyResult<&'a Opener> {
        self.opener.ok_or_else(|| bad("lent memory is decoded by an engine alone"))
    }

    fn lent<'py>(&self, py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let opener = self.opener()?;
        let handle: BulkHandle =
            from_bytes(Encoding::Native, payload).map_err(|error| bad(&error.to_string()))?;
        let remote = opener.engine.open(&handle).map_err(|error| bad(&error.to_string()))?;
        Ok(Bound::new(py, Remote::new(opener, remote, payload))?.into_any())
    }

    fn loan<'py>(&self, py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let opener = self.opener()?;
        let (element, shape, key) =
            take_shape(payload).ok_or_else(|| bad("an array of an unknown kind"))?;
        let loan = Loan::new(opener, element, shape, key, payload);
        Ok(Bound::new(py, loan.map_err(|text| bad(&text))?)?.into_any())
    }
}

/// An array that travelled: of numpy if that is there, otherwise a memoryview.
fn array<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let (element, shape, numbers) =
        take_shape(payload).ok_or_else(|| bad("an array of an unknown kind"))?;
    if numbers::bytes(element, &shape) != Some(numbers.len()) {
        return Err(bad("an array is as long as its shape says"));
    }
    let memory = exposed::memory(py, Region::from_vec(numbers.to_vec()), element, &shape, true)?;
    present(&memory)
}

/// An object with the buffer protocol, as what programs compute with.
pub(crate) fn present<'py>(memory: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    match numpy(py)? {
        Some(asarray) => asarray.call1((memory,)),
        None => Ok(PyMemoryView::from(memory)?.into_any()),
    }
}

/// `numpy.asarray`, if there is numpy.
fn numpy(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyAny>>> {
    use pyo3::sync::PyOnceLock;
    static ASARRAY: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let found = ASARRAY.get_or_init(py, || {
        let numpy = py.import("numpy").ok()?;
        Some(numpy.getattr("asarray").ok()?.unbind())
    });
    Ok(found.as_ref().map(|asarray| asarray.bind(py)))
}

fn deeper(depth: usize) -> PyResult<usize> {
    depth.checked_sub(1).ok_or_else(|| bad(&format!("nested more than {DEPTH} deep")))
}
