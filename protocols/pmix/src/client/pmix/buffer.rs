//! What a client packs for a server, and what a server packs for it, in the wire of OpenPMIx 4.1
//! ([`crate::packing`]), and the conversion to our own values. A server's message bounds what it
//! contains. It is measured, and read once.

pub(super) use crate::packing::{Reader, WILDCARD};
use crate::{
    Scope, Value,
    conversion::put_value,
    packing::{Refusal, UNSUPPORTED, is_signed, kind, number, put_signed, put_unsigned},
    value::MAX_VALUE,
};
use std::io;

/// In place of a rank: none.
const UNDEFINED: u32 = u32::MAX;

/// A process, as it is named on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) space: String,
    pub(super) rank: u32,
}

/// A value, with the distinctions that only the wire makes.
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
    /// As a value of ours. A list of named values has no form of its own there.
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
        put_unsigned(&mut self.0, number);
    }

    pub(super) fn signed(&mut self, number: i64) {
        put_signed(&mut self.0, number);
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// The beginning of a message.
    pub(super) fn command(&mut self, number: u8) {
        self.count(1);
        self.byte(number);
    }

    /// Before each thing that is packed by itself: their count.
    pub(super) fn count(&mut self, count: usize) {
        self.signed(count as i64);
    }

    /// Text. The server would not read past a NUL.
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
            Typed::Plain(value) => put_value(&mut self.0, "", value),
            Typed::Int(number) => {
                self.kind(kind::INT);
                self.signed(i64::from(*number));
            }
            Typed::Range(range) => {
                self.kind(kind::RANGE);
                self.byte(*range);
            }
            Typed::Persistence(persistence) => {
                self.kind(kind::PERSISTENCE);
                self.byte(*persistence);
            }
            Typed::Procs(names) => {
                self.kind(kind::ARRAY);
                self.kind(kind::PROC);
                self.unsigned(names.len() as u64);
                names.iter().for_each(|name| self.name(name));
            }
            Typed::Infos(infos) => {
                self.kind(kind::ARRAY);
                self.kind(kind::INFO);
                self.unsigned(infos.len() as u64);
                infos.iter().for_each(|(key, value)| self.info(key, value));
            }
        }
    }

    fn kind(&mut self, kind: u16) {
        self.unsigned(u64::from(kind));
    }

    pub(super) fn info(&mut self, key: &str, value: &Typed) {
        self.text(key);
        self.unsigned(0);
        self.typed(value);
    }

    /// The count of infos, and the infos.
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
        put_value(&mut self.0, "", value);
    }
}

pub(super) fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a message of the PMIx server: {why}"))
}

/// What cannot be read ends the connection: the server belongs to another launcher.
impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        match refusal {
            UNSUPPORTED => bad("it has a value of a type that is not known"),
            _ => bad("it ends within a value, or is not packed as it should be"),
        }
    }
}

/// What only servers send.
impl Reader<'_> {
    /// The count of what follows. Each takes a byte at least.
    pub(super) fn count(&mut self) -> io::Result<usize> {
        let count = usize::try_from(self.signed()?).ok().filter(|count| *count <= self.0.len());
        count.ok_or_else(|| bad("it promises more than it holds"))
    }

    /// The count of elements of an array. Each takes a byte at least.
    fn elements(&mut self) -> io::Result<usize> {
        let count = usize::try_from(self.unsigned()?).ok().filter(|count| *count <= self.0.len());
        count.ok_or_else(|| bad("an array promises more than it holds"))
    }

    pub(super) fn name(&mut self) -> io::Result<Name> {
        Ok(Name { space: self.text()?, rank: self.rank()? })
    }

    /// A value packed with its type.
    pub(super) fn typed(&mut self) -> io::Result<Typed> {
        let kind = self.kind()?;
        self.of(kind)
    }

    /// A value of a type. Measuring it also bounds the depth of nested values.
    fn of(&mut self, kind: u16) -> io::Result<Typed> {
        let packed = self.measure(kind)?;
        let mut from = Reader(packed);
        Ok(Typed::Plain(match kind {
            kind::RANGE => return Ok(Typed::Range(from.byte()?)),
            kind::PROC => return Ok(Typed::Procs(vec![from.name()?])),
            kind::VALUE => return from.typed(),
            kind::ARRAY => return from.array(),
            kind::BOOL => Value::Bool(from.byte()? != 0),
            kind::STRING | kind::REGEX => from.text()?.into(),
            kind::BYTES => from.bytes()?.into(),
            kind::FLOAT | kind::DOUBLE => {
                Value::Real(from.text()?.parse().map_err(|_| bad("a number that is none"))?)
            }
            kind::TIMEVAL => {
                let (seconds, more) = (from.signed()?, from.signed()?);
                Value::List(vec![seconds.into(), more.into()])
            }
            kind::RANK => match from.rank()? {
                UNDEFINED => Value::Int(-1),
                rank => rank.into(),
            },
            kind::COMPRESSED_TEXT => {
                let bytes = inflated(from.bytes()?)?;
                let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
                String::from_utf8_lossy(text).into_owned().into()
            }
            kind::COMPRESSED_BYTES => inflated(from.bytes()?)?.into(),
            kind => {
                let number = number(kind, packed).ok_or(UNSUPPORTED)?;
                match u64::try_from(number) {
                    Ok(number) if !is_signed(kind) => number.into(),
                    _ => i64::try_from(number).map_err(|_| bad("a number of 65 bits"))?.into(),
                }
            }
        }))
    }

    fn array(&mut self) -> io::Result<Typed> {
        let kind = self.kind()?;
        let count = self.elements()?;
        match kind {
            kind::INFO => {
                let infos: io::Result<Vec<_>> = (0..count).map(|_| self.info()).collect();
                Ok(Typed::Infos(infos?))
            }
            kind::PROC => {
                Ok(Typed::Procs((0..count).map(|_| self.name()).collect::<io::Result<_>>()?))
            }
            _ => {
                let value = |_| {
                    let value = self.of(kind)?.plain();
                    value.ok_or_else(|| bad("an array within an array of values"))
                };
                Ok(Typed::Plain(Value::List((0..count).map(value).collect::<io::Result<_>>()?)))
            }
        }
    }

    fn info(&mut self) -> io::Result<(String, Typed)> {
        let key = self.text()?;
        self.unsigned()?;
        Ok((key, self.typed()?))
    }

    /// The count of infos, and the infos.
    pub(super) fn infos(&mut self) -> io::Result<Vec<(String, Typed)>> {
        self.count()?;
        if self.elements()? == 0 {
            return Ok(Vec::new());
        }
        (0..self.count()?).map(|_| self.info()).collect()
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
    fn numbers_of_all_types_are_read() {
        let of = |bytes: &[u8]| Reader(bytes).typed().unwrap();
        // The number of a process has its real type before it.
        assert_eq!(of(&[5, 14, 0x80, 1]), Typed::Plain(Value::Uint(128)));
        assert_eq!(of(&[6, 4]), Typed::Plain(Value::Int(2)));
        assert_eq!(of(&[20, 3]), Typed::Plain(Value::Int(-2)));
        assert_eq!(of(&[7, 0xff]), Typed::Plain(Value::Int(-1)));
        assert_eq!(of(&[12, 0xff]), Typed::Plain(Value::Uint(255)));
        assert_eq!(of(&[18, 2, 4]), Typed::Plain(Value::List(vec![1i64.into(), 2i64.into()])));
        assert_eq!(of(&[33, 3]), Typed::Range(3));
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
        // Deeper than allowed.
        let deep: Vec<u8> = [21].repeat(1000);
        assert!(Reader(&deep).typed().is_err());
        let deep: Vec<u8> = [39, 39, 1].repeat(1000);
        assert!(Reader(&deep).typed().is_err());
        // More than is there.
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
