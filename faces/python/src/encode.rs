//! From Python objects to bytes.

use crate::{
    array::{Array, Loan},
    buffer::{self, Export},
    bulk::{Bulk, Remote},
    codec::{self, ARRAY, DEPTH, LENT, LOAN, VALUES},
    errors,
    numbers::DIMENSIONS,
};
use pyo3::{
    exceptions::{PyOverflowError, PyTypeError},
    intern,
    prelude::*,
    types::{
        PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString,
        PyTuple,
    },
};
use rmp::encode as msgpack;

/// Appends a value to `out`, which is as before if that fails.
///
/// `None`, `bool`, `int` of 64 bits, `float`, `str`, `bytes`, `list`, `tuple`, `dict`, dataclasses
/// (as dictionaries of their fields), what has the buffer protocol (as an array of numbers), lent
/// memory and arrays of the transport's.
pub(crate) fn encode(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    let before = out.len();
    let mut encoder = Encoder { out, left: VALUES };
    let encoded = encoder.value(value, DEPTH);
    if encoded.is_err() {
        out.truncate(before);
    }
    encoded
}

struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    /// How many more values there may be.
    left: usize,
}

/// A length as the format has it.
fn short(len: usize) -> PyResult<u32> {
    u32::try_from(len).map_err(|_| {
        let text = "more than 4 GiB do not travel as one argument or result: lend the memory";
        errors::plain("TooLarge", text)
    })
}

/// Nothing fails that writes to a vector.
fn sure<E: std::fmt::Debug>(result: Result<impl Sized, E>) {
    result.expect("a vector takes all");
}

impl Encoder<'_> {
    fn value(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        let Some(left) = self.left.checked_sub(1) else {
            let text =
                format!("a message has at most {VALUES} values: send arrays, or lend memory");
            return Err(errors::plain("TooLarge", &text));
        };
        self.left = left;
        if value.is_none() {
            sure(msgpack::write_nil(self.out));
        } else if let Ok(text) = value.cast::<PyString>() {
            let text = text.to_cow().map_err(|error| {
                PyTypeError::new_err(format!("text that is no Unicode is not encoded: {error}"))
            })?;
            short(text.len())?;
            sure(msgpack::write_str(self.out, &text));
        } else if let Ok(truth) = value.cast::<PyBool>() {
            sure(msgpack::write_bool(self.out, truth.is_true()));
        } else if value.is_instance_of::<PyInt>() {
            self.integer(value)?;
        } else if let Ok(number) = value.cast::<PyFloat>() {
            sure(msgpack::write_f64(self.out, number.value()));
        } else if let Ok(bytes) = value.cast::<PyBytes>() {
            short(bytes.as_bytes().len())?;
            sure(msgpack::write_bin(self.out, bytes.as_bytes()));
        } else if let Ok(list) = value.cast::<PyList>() {
            let depth = deeper(depth)?;
            // It may change meanwhile: what is there now is sent.
            let items: Vec<_> = list.iter().collect();
            sure(msgpack::write_array_len(self.out, short(items.len())?));
            for item in items {
                self.value(&item, depth)?;
            }
        } else if let Ok(tuple) = value.cast::<PyTuple>() {
            let depth = deeper(depth)?;
            sure(msgpack::write_array_len(self.out, short(tuple.len())?));
            for item in tuple.iter() {
                self.value(&item, depth)?;
            }
        } else if let Ok(dict) = value.cast::<PyDict>() {
            let depth = deeper(depth)?;
            let items: Vec<_> = dict.iter().collect();
            sure(msgpack::write_map_len(self.out, short(items.len())?));
            for (key, item) in items {
                self.value(&key, depth)?;
                self.value(&item, depth)?;
            }
        } else {
            self.other(value, depth)?;
        }
        Ok(())
    }

    fn integer(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(number) = value.extract::<i64>() {
            sure(msgpack::write_sint(self.out, number));
        } else if let Ok(number) = value.extract::<u64>() {
            sure(msgpack::write_uint(self.out, number));
        } else {
            let text = "an integer has 64 bits at most; send larger ones as bytes or text";
            return Err(PyOverflowError::new_err(text));
        }
        Ok(())
    }

    /// What is of no type that the format has.
    fn other(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        let py = value.py();
        if let Ok(bytes) = value.cast::<PyByteArray>() {
            let bytes = bytes.to_vec();
            short(bytes.len())?;
            sure(msgpack::write_bin(self.out, &bytes));
        } else if let Ok(bulk) = value.cast::<Bulk>() {
            self.extension(LENT, bulk.get().descriptor());
        } else if let Ok(remote) = value.cast::<Remote>() {
            self.extension(LENT, remote.get().descriptor());
        } else if let Ok(array) = value.cast::<Array>() {
            self.extension(LOAN, array.get().loan());
        } else if let Ok(loan) = value.cast::<Loan>() {
            self.extension(LOAN, loan.get().loan());
        } else if let Ok(lent) = value.getattr(intern!(py, "__petasos__")) {
            // An object that stands for one of these.
            self.left += 1;
            self.value(&lent, deeper(depth)?)?;
        } else if buffer::is_buffer(value) {
            self.array(value, depth)?;
        } else if let Ok(fields) = value.get_type().getattr(intern!(py, "__dataclass_fields__")) {
            let fields = fields.cast_into::<PyDict>()?;
            let depth = deeper(depth)?;
            sure(msgpack::write_map_len(self.out, short(fields.len())?));
            for name in fields.keys() {
                self.value(&name, depth)?;
                self.value(&value.getattr(name.cast::<PyString>()?)?, depth)?;
            }
        } else {
            return Err(PyTypeError::new_err(format!(
                "{} does not travel: send None, bool, int, float, str, bytes, list, tuple, dict, \
                 a dataclass, or an array of numbers; objects are never pickled",
                value.get_type()
            )));
        }
        Ok(())
    }

    fn extension(&mut self, kind: i8, payload: &[u8]) {
        sure(msgpack::write_ext_meta(self.out, payload.len() as u32, kind));
        self.out.extend_from_slice(payload);
    }

    fn array(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        let py = value.py();
        let Ok(export) = Export::of_array(value) else {
            // Not contiguous: a copy is.
            let view = PyMemoryView::from(value)?;
            let bytes = view.call_method1(intern!(py, "tobytes"), ())?;
            let kind = view.getattr(intern!(py, "format"))?;
            let shape: Vec<u64> = view.getattr(intern!(py, "shape"))?.extract()?;
            let size: usize = view.getattr(intern!(py, "itemsize"))?.extract()?;
            let element = crate::numbers::Element::of_format(&kind.extract::<String>()?, size);
            let element = element.ok_or_else(|| unknown(value))?;
            let bytes = bytes.cast::<PyBytes>()?.as_bytes();
            let len = short(codec::shape_len(&shape).saturating_add(bytes.len()))?;
            sure(msgpack::write_ext_meta(self.out, len, ARRAY));
            codec::put_shape(self.out, element, &shape);
            self.out.extend_from_slice(bytes);
            return Ok(());
        };
        let shape = export.shape();
        // A number of numpy's is an array of no dimension.
        if shape.is_empty() && value.hasattr(intern!(py, "item"))? {
            let number = value.call_method0(intern!(py, "item"))?;
            if number.is_instance_of::<PyInt>() || number.is_instance_of::<PyFloat>() {
                self.left += 1;
                return self.value(&number, deeper(depth)?);
            }
        }
        let element = export.element().ok_or_else(|| unknown(value))?;
        if shape.len() > DIMENSIONS {
            return Err(PyTypeError::new_err("an array has at most 64 dimensions"));
        }
        let len = short(codec::shape_len(&shape).saturating_add(export.len()))?;
        sure(msgpack::write_ext_meta(self.out, len, ARRAY));
        codec::put_shape(self.out, element, &shape);
        export.append_to(self.out);
        Ok(())
    }
}

fn unknown(value: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "{} is of numbers that do not travel: bool, int and uint of 8 to 64 bits, float of 16 to \
         64, complex, little-endian",
        value.get_type()
    ))
}

fn deeper(depth: usize) -> PyResult<usize> {
    depth.checked_sub(1).ok_or_else(|| {
        let text = format!("lists and dictionaries are nested {DEPTH} deep at most");
        errors::plain("TooLarge", &text)
    })
}
