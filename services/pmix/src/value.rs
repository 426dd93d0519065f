//! Keys, values, and the processes that see them: the business card of a process.

use crate::names::Node;
use petasos_macros::Wire;
use std::{collections::BTreeMap, fmt};

/// The longest key in bytes.
pub const MAX_KEY: usize = 511;
/// The longest value in bytes.
pub const MAX_VALUE: usize = 4 << 20;
/// What keys of job data begin with: the daemon knows them, and they never travel in an exchange.
pub const RESERVED: &str = "pmix.";

/// A value.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Value {
    /// A truth value.
    Bool(bool),
    /// A number that may be negative.
    Int(i64),
    /// A number.
    Uint(u64),
    /// A number with a fraction.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes of the user's own.
    Bytes(Vec<u8>),
    /// Several.
    List(#[wire(recursive)] Vec<Value>),
    /// Of another type of PMIx: comes from, and goes to, programs that use OpenPMIx.
    Typed {
        /// The number of the type.
        kind: u16,
        /// The value, as OpenPMIx 4.1 packs it.
        packed: Vec<u8>,
    },
    /// Several, each with a name.
    Record(#[wire(recursive)] Vec<(String, Value)>),
}

impl Value {
    /// About how many bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) | Value::Typed { packed: bytes, .. } => bytes.len(),
            Value::List(list) => list.iter().map(|value| 8 + value.size()).sum(),
            Value::Record(named) => {
                named.iter().map(|(name, value)| 8 + name.len() + value.size()).sum()
            }
            _ => 8,
        }
    }

    /// The number, if it is one that is not negative.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Uint(number) => Some(*number),
            Value::Int(number) => u64::try_from(*number).ok(),
            Value::Typed { kind, packed } => {
                u64::try_from(crate::pmix41::number(*kind, packed)?).ok()
            }
            _ => None,
        }
    }

    /// The text, if it is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// The bytes, if they are bytes.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Uint(value) => write!(f, "{value}"),
            Value::Real(value) => write!(f, "{value}"),
            Value::Text(value) => f.write_str(value),
            Value::Bytes(value) => write!(f, "{} bytes", value.len()),
            Value::List(values) => {
                let shown: Vec<String> = values.iter().map(Value::to_string).collect();
                f.write_str(&shown.join(" "))
            }
            Value::Record(named) => {
                let shown: Vec<String> =
                    named.iter().map(|(name, value)| format!("{name}={value}")).collect();
                f.write_str(&shown.join(" "))
            }
            Value::Typed { kind, packed } => match crate::pmix41::number(*kind, packed) {
                Some(number) => write!(f, "{number}"),
                None => write!(f, "{} bytes of PMIx type {kind}", packed.len()),
            },
        }
    }
}

macro_rules! from {
    ($($t:ty => $v:ident),*) => {$(
        impl From<$t> for Value {
            fn from(value: $t) -> Value {
                Value::$v(value.into())
            }
        }
    )*};
}
from!(bool => Bool, i32 => Int, i64 => Int, u32 => Uint, u64 => Uint, f64 => Real, &str => Text,
      String => Text, &[u8] => Bytes, Vec<u8> => Bytes, Vec<Value> => List);

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(value: &[u8; N]) -> Value {
        Value::Bytes(value.to_vec())
    }
}

/// Named values, in no particular order.
pub type Info = Vec<(String, Value)>;

/// The processes that see what a process puts (PMIx Standard 4.1, section 7.1).
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Processes on the same node.
    Local,
    /// Processes on other nodes.
    Remote,
    /// All.
    Global,
    /// The process itself.
    Internal,
}

impl Scope {
    /// Whether a process on `viewer` sees what was put so on `host`.
    #[must_use]
    pub fn shows(self, host: Node, viewer: Node) -> bool {
        match self {
            Scope::Local => host == viewer,
            Scope::Remote => host != viewer,
            Scope::Global => true,
            Scope::Internal => false,
        }
    }
}

/// What a process puts under a key.
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Entry {
    /// The processes that see it.
    pub scope: Scope,
    /// What.
    pub value: Value,
}

impl Entry {
    /// About how many bytes it takes, with its key.
    pub(crate) fn size(&self, key: &str) -> usize {
        key.len() + self.value.size() + 64
    }
}

/// All that a process has committed.
#[derive(Wire, Clone, Debug, Default, PartialEq)]
pub struct BusinessCard {
    /// How often the rank was started again before this process.
    pub restarts: u32,
    /// How often it has committed; 0: not yet.
    pub version: u64,
    /// By key.
    pub entries: BTreeMap<String, Entry>,
}

impl BusinessCard {
    /// Takes a commit: what is new replaces what was.
    pub fn commit(&mut self, entries: impl IntoIterator<Item = (String, Entry)>) {
        self.version += 1;
        self.entries.extend(entries);
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        64 + self.entries.iter().map(|(key, entry)| entry.size(key)).sum::<usize>()
    }

    /// What a process on `viewer` sees of the card of one on `host`.
    #[must_use]
    pub fn seen_from(&self, host: Node, viewer: Node) -> BusinessCard {
        let seen = self.entries.iter().filter(|(_, entry)| entry.scope.shows(host, viewer));
        let entries = seen.map(|(key, entry)| (key.clone(), entry.clone())).collect();
        BusinessCard { restarts: self.restarts, version: self.version, entries }
    }
}
