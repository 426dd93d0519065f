//! How OpenPMIx 4.1 packs: numbers of seven bits a byte, text with its end, typed values. What a
//! server sends is bounded by its message, looked at once, and turned into our own values.

use crate::{Scope, Value, numbers, value::MAX_VALUE};
use std::io;

/// Types of the wire that are spoken of by name here; see [`Reader::value`] for all that are read.
pub(super) const BOOL: u64 = 1;
pub(super) const TEXT: u64 = 3;
const INT: u64 = 6;
const INT64: u64 = 10;
const UINT64: u64 = 15;
const DOUBLE: u64 = 17;
const VALUE: u64 = 21;
const PROC: u64 = 22;
const INFO: u64 = 24;
const BYTES: u64 = 27;
const PERSISTENCE: u64 = 30;
const RANGE: u64 = 33;
const ARRAY: u64 = 39;
const RANK: u64 = 40;

/// In place of a rank: all of the namespace.
pub(super) const WILDCARD: u32 = u32::MAX - 1;
/// In place of a rank: nobody.
const UNDEFINED: u32 = u32::MAX;
/// Values within values within values.
const DEEPEST: u32 = 8;

/// A process, as it is named on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) space: String,
    pub(super) rank: u32,
}

/// A value with what only the wire tells apart.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Typed {
    Plain(Value),
    Int(i32),
    Range(u8),
    Persistence(u8),
    Procs(Vec<Name>),
    Infos(Vec<(String, Typed)>),
}

impl Typed {
    /// As a value of ours; what a list of named values is has no form of its own there.
    pub(super) fn plain(self) -> Option<Value> {
        Some(match self {
            Typed::Plain(value) => value,
            Typed::Int(number) => number.into(),
            Typed::Range(number) | Typed::Persistence(number) => u64::from(number).into(),
            Typed::Procs(procs) => {
                let text = |name: Name| Value::Text(format!("{}:{}", name.space, name.rank));
                Value::List(procs.into_iter().map(text).collect())
            }
            Typed::Infos(_) => return None,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn unsigned(&mut self, number: u64) {
        numbers::put_unsigned(&mut self.0, number);
    }

    pub(super) fn signed(&mut self, number: i64) {
        numbers::put_signed(&mut self.0, number);
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// What a message begins with.
    pub(super) fn command(&mut self, number: u8) {
        self.count(1);
        self.byte(number);
    }

    /// Before each thing that is packed by itself: how many follow.
    pub(super) fn count(&mut self, count: usize) {
        self.signed(count as i64);
    }

    /// Text; what stands behind a NUL would not be read.
    pub(super) fn text(&mut self, text: &str) {
        let text = text.split('\0').next().unwrap_or_default();
        self.signed(text.len() as i64 + 1);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    pub(super) fn name(&mut self, name: &Name) {
        self.text(&name.space);
        self.unsigned(u64::from(name.rank));
    }

    /// Its type, and the value.
    pub(super) fn typed(&mut self, value: &Typed) {
        match value {
            Typed::Plain(value) => self.value(value),
            Typed::Int(number) => {
                self.unsigned(INT);
                self.signed(i64::from(*number));
            }
            Typed::Range(range) => {
                self.unsigned(RANGE);
                self.byte(*range);
            }
            Typed::Persistence(persistence) => {
                self.unsigned(PERSISTENCE);
                self.byte(*persistence);
            }
            Typed::Procs(names) => {
                self.unsigned(ARRAY);
                self.unsigned(PROC);
                self.unsigned(names.len() as u64);
                names.iter().for_each(|name| self.name(name));
            }
            Typed::Infos(infos) => {
                self.unsigned(ARRAY);
                self.unsigned(INFO);
                self.unsigned(infos.len() as u64);
                infos.iter().for_each(|(key, value)| self.info(key, value));
            }
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Bool(truth) => {
                self.unsigned(BOOL);
                self.byte(u8::from(*truth));
            }
            Value::Int(number) => {
                self.unsigned(INT64);
                self.signed(*number);
            }
            Value::Uint(number) => {
                self.unsigned(UINT64);
                self.unsigned(*number);
            }
            // With as many digits as it takes to get the same number back.
            Value::Real(number) => {
                self.unsigned(DOUBLE);
                self.text(&format!("{number:e}"));
            }
            Value::Text(text) => {
                self.unsigned(TEXT);
                self.text(text);
            }
            Value::Bytes(bytes) => {
                self.unsigned(BYTES);
                self.unsigned(bytes.len() as u64);
                self.0.extend(bytes);
            }
            Value::List(values) => {
                self.unsigned(ARRAY);
                self.unsigned(VALUE);
                self.unsigned(values.len() as u64);
                values.iter().for_each(|value| self.value(value));
            }
            Value::Record(named) => {
                self.unsigned(ARRAY);
                self.unsigned(INFO);
                self.unsigned(named.len() as u64);
                for (name, value) in named {
                    self.text(name);
                    self.unsigned(0);
                    self.value(value);
                }
            }
            // Packed as it came, or as the program says that it is.
            Value::Typed { kind, packed } => {
                self.unsigned(u64::from(*kind));
                self.0.extend(packed);
            }
        }
    }

    pub(super) fn info(&mut self, key: &str, value: &Typed) {
        self.text(key);
        self.unsigned(0);
        self.typed(value);
    }

    /// How many infos, and they.
    pub(super) fn infos(&mut self, infos: &[(&str, Typed)]) {
        self.count(1);
        self.unsigned(infos.len() as u64);
        if !infos.is_empty() {
            self.count(infos.len());
            infos.iter().for_each(|(key, value)| self.info(key, value));
        }
    }

    /// A key and its value, packed by itself.
    pub(super) fn pair(&mut self, key: &str, value: &Value) {
        self.count(1);
        self.text(key);
        self.value(value);
    }
}

/// Reads what a server packed; what is not there, or not known, is an error.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

pub(super) fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a message of the PMIx server: {why}"))
}

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn raw(&mut self, len: u64) -> io::Result<&'a [u8]> {
        let len = usize::try_from(len).ok();
        let split = len.and_then(|len| self.0.split_at_checked(len));
        let (taken, rest) = split.ok_or_else(|| bad("it ends within a value"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> io::Result<u8> {
        Ok(self.raw(1)?[0])
    }

    pub(super) fn unsigned(&mut self) -> io::Result<u64> {
        numbers::take_unsigned(&mut self.0).ok_or_else(|| bad("it ends within a number"))
    }

    pub(super) fn signed(&mut self) -> io::Result<i64> {
        numbers::take_signed(&mut self.0).ok_or_else(|| bad("it ends within a number"))
    }

    /// How many things follow; each takes a byte at least.
    pub(super) fn count(&mut self) -> io::Result<usize> {
        let count = usize::try_from(self.signed()?).ok().filter(|count| *count <= self.0.len());
        count.ok_or_else(|| bad("it promises more than it holds"))
    }

    /// How many elements an array has; each takes a byte at least.
    fn elements(&mut self) -> io::Result<usize> {
        let count = usize::try_from(self.unsigned()?).ok().filter(|count| *count <= self.0.len());
        count.ok_or_else(|| bad("an array promises more than it holds"))
    }

    pub(super) fn text(&mut self) -> io::Result<String> {
        let len = u64::try_from(self.signed()?).map_err(|_| bad("text of a negative length"))?;
        let bytes = self.raw(len)?;
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn rank(&mut self) -> io::Result<u32> {
        u32::try_from(self.unsigned()?).map_err(|_| bad("a rank beyond 32 bits"))
    }

    pub(super) fn name(&mut self) -> io::Result<Name> {
        Ok(Name { space: self.text()?, rank: self.rank()? })
    }

    pub(super) fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let len = self.unsigned()?;
        self.raw(len)
    }

    /// A status packed by itself.
    pub(super) fn status(&mut self) -> io::Result<i32> {
        self.count()?;
        i32::try_from(self.signed()?).map_err(|_| bad("a status beyond 32 bits"))
    }

    /// A value packed with its type.
    pub(super) fn typed(&mut self) -> io::Result<Typed> {
        self.nested(DEEPEST)
    }

    fn nested(&mut self, depth: u32) -> io::Result<Typed> {
        let kind = self.unsigned()?;
        self.of(kind, depth)
    }

    fn of(&mut self, kind: u64, depth: u32) -> io::Result<Typed> {
        let plain = |value: Value| Ok(Typed::Plain(value));
        match kind {
            BOOL => plain(Value::Bool(self.byte()? != 0)),
            // Bytes; scopes, states and the like.
            2 | 12 | PERSISTENCE | 32 | 34 | 37 | 43 | 50 | 51 => {
                plain(u64::from(self.byte()?).into())
            }
            7 => plain(i64::from(self.byte()? as i8).into()),
            RANGE => Ok(Typed::Range(self.byte()?)),
            TEXT | 60 => plain(self.text()?.into()),
            // Sizes, process numbers, unsigned numbers, times.
            4 | 5 | 11 | 13 | 14 | UINT64 | 19 | 35 | 36 | 45 | 57 | 58 => {
                plain(self.unsigned()?.into())
            }
            INT | 8 | 9 | INT64 | 20 => plain(self.signed()?.into()),
            16 | DOUBLE => {
                let text = self.text()?;
                plain(Value::Real(text.parse().map_err(|_| bad("a number that is none"))?))
            }
            18 => {
                let (seconds, more) = (self.signed()?, self.signed()?);
                plain(Value::List(vec![seconds.into(), more.into()]))
            }
            VALUE if depth > 0 => self.nested(depth - 1),
            PROC => Ok(Typed::Procs(vec![self.name()?])),
            BYTES => plain(self.bytes()?.into()),
            ARRAY if depth > 0 => self.array(depth - 1),
            RANK => plain(match self.rank()? {
                UNDEFINED => Value::Int(-1),
                rank => rank.into(),
            }),
            42 => {
                let bytes = inflated(self.bytes()?)?;
                let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                plain(String::from_utf8_lossy(text).into_owned().into())
            }
            59 => plain(inflated(self.bytes()?)?.into()),
            _ => Err(bad(&format!("a value of type {kind}, {DEEPEST} deep at most"))),
        }
    }

    fn array(&mut self, depth: u32) -> io::Result<Typed> {
        let kind = self.unsigned()?;
        let count = self.elements()?;
        match kind {
            INFO => {
                let infos: io::Result<Vec<_>> = (0..count).map(|_| self.info(depth)).collect();
                Ok(Typed::Infos(infos?))
            }
            PROC => Ok(Typed::Procs((0..count).map(|_| self.name()).collect::<io::Result<_>>()?)),
            _ => {
                let value = |_| {
                    let value = self.of(kind, depth)?.plain();
                    value.ok_or_else(|| bad("an array within an array of values"))
                };
                Ok(Typed::Plain(Value::List((0..count).map(value).collect::<io::Result<_>>()?)))
            }
        }
    }

    fn info(&mut self, depth: u32) -> io::Result<(String, Typed)> {
        let key = self.text()?;
        self.unsigned()?;
        Ok((key, self.nested(depth)?))
    }

    /// How many infos, and they.
    pub(super) fn infos(&mut self) -> io::Result<Vec<(String, Typed)>> {
        self.count()?;
        if self.elements()? == 0 {
            return Ok(Vec::new());
        }
        (0..self.count()?).map(|_| self.info(DEEPEST)).collect()
    }

    /// Keys with their values, each packed by itself, up to the end.
    pub(super) fn pairs(&mut self) -> io::Result<Vec<(String, Typed)>> {
        let mut pairs = Vec::new();
        while !self.is_empty() {
            self.count()?;
            pairs.push((self.text()?, self.typed()?));
        }
        Ok(pairs)
    }
}

/// What was compressed by zlib, with its length before it.
fn inflated(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let (_, packed) = bytes.split_first_chunk::<4>().ok_or_else(|| bad("nothing compressed"))?;
    miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, MAX_VALUE)
        .map_err(|error| bad(&format!("compressed data: {error}")))
}

/// A scope as it is on the wire.
pub(super) fn scope(scope: Scope) -> u8 {
    match scope {
        Scope::Local => 1,
        Scope::Remote => 2,
        Scope::Global => 3,
        Scope::Internal => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive() {
        let values = [
            Value::Bool(true),
            Value::Int(i64::MIN),
            Value::Uint(u64::MAX),
            Value::Real(1.0 / 3.0),
            Value::Real(-1e300),
            "text".into(),
            "".into(),
            vec![0, 1, 255].into(),
            Vec::<u8>::new().into(),
            Value::List(vec![Value::Uint(7), "x".into(), Value::List(vec![true.into()])]),
        ];
        for value in values {
            let mut out = Writer::default();
            out.pair("key", &value);
            let pairs = Reader(&out.0).pairs().unwrap();
            assert_eq!(pairs, [("key".to_owned(), Typed::Plain(value))]);
        }
        let name = |rank| Name { space: "space".into(), rank };
        let infos = [
            ("a", Typed::Range(2)),
            ("b", Typed::Procs(vec![name(0), name(WILDCARD)])),
            ("c", Typed::Infos(vec![("d".into(), Typed::Plain(1u64.into()))])),
        ];
        let mut out = Writer::default();
        out.infos(&infos);
        let come = Reader(&out.0).infos().unwrap();
        assert!(come.iter().zip(&infos).all(|(a, b)| (a.0.as_str(), &a.1) == (b.0, &b.1)));
    }

    #[test]
    fn compressed_text_is_read_up_to_a_limit() {
        let pack = |len: usize| {
            let packed = miniz_oxide::deflate::compress_to_vec_zlib(&vec![b'x'; len], 6);
            let mut out = Writer::default();
            out.unsigned(42);
            out.unsigned(packed.len() as u64 + 4);
            out.0.extend((len as u32).to_le_bytes());
            out.0.extend(packed);
            out.0
        };
        let text = Reader(&pack(9000)).typed().unwrap();
        assert_eq!(text, Typed::Plain("x".repeat(9000).into()));
        assert!(Reader(&pack(MAX_VALUE + 1)).typed().is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        // Deeper than deep.
        let deep: Vec<u8> = [21].repeat(1000);
        assert!(Reader(&deep).typed().is_err());
        let deep: Vec<u8> = [39, 39, 1].repeat(1000);
        assert!(Reader(&deep).typed().is_err());
        // More than there is.
        assert!(Reader(&[39, 24, 0xff, 0xff, 0xff, 0x7f]).typed().is_err());
        assert!(Reader(&[27, 200, 1, 0]).typed().is_err());
        assert!(Reader(&[3, 1]).typed().is_err());
        assert!(Reader(&[99]).typed().is_err());
        let mut random = 1u64;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..40)
                .map(|_| {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (random >> 33) as u8 & [0xff, 0x3f][(random >> 60) as usize & 1]
                })
                .collect();
            let _ = Reader(&bytes).pairs();
            let _ = Reader(&bytes).infos();
            let _ = Reader(&bytes).typed();
        }
    }
}
