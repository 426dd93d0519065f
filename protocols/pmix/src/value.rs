//! Keys, values and scopes: the business card of a process.

use crate::{names::Node, packing};
use petasos_macros::Wire;
use std::{collections::BTreeMap, fmt};

/// The longest key, in bytes.
pub const MAX_KEY: usize = 511;
/// The longest value, in bytes: see [`Value::size`].
pub const MAX_VALUE: usize = 4 << 20;
/// The prefix of keys of job data. The daemon answers them, and a process cannot put them.
pub const RESERVED: &str = "pmix.";

/// A value of a key.
///
/// ```
/// use petasos_pmix::Value;
///
/// assert_eq!(Value::from(4040u32), Value::Uint(4040));
/// assert_eq!(Value::from("tcp://h:1").as_str(), Some("tcp://h:1"));
/// assert_eq!(Value::from(7i32).as_u64(), Some(7));
/// assert_eq!(Value::from(-7i32).as_u64(), None);
/// assert_eq!(Value::from(&[1u8, 2][..]).as_bytes(), Some(&[1u8, 2][..]));
/// ```
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Value {
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes that only the program interprets.
    Bytes(Vec<u8>),
    /// A list of values.
    List(#[wire(recursive)] Vec<Value>),
    /// A value of another type of PMIx, from or for a program that uses OpenPMIx.
    Typed {
        /// The number of the type.
        kind: u16,
        /// The value, as OpenPMIx 4.1 packs it.
        packed: Vec<u8>,
    },
    /// Named values.
    Record(#[wire(recursive)] Vec<(String, Value)>),
}

impl Value {
    /// About how many bytes it takes. This is what [`MAX_VALUE`] limits.
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

    /// The number, if it is an integer and not negative.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Uint(number) => Some(*number),
            Value::Int(number) => u64::try_from(*number).ok(),
            Value::Typed { kind, packed } => u64::try_from(packing::number(*kind, packed)?).ok(),
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
            Value::Typed { kind, packed } => match packing::number(*kind, packed) {
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
///
/// ```
/// use petasos_pmix::{Node, Scope};
///
/// assert!(Scope::Local.shows(Node(1), Node(1)) && !Scope::Local.shows(Node(1), Node(2)));
/// assert!(Scope::Remote.shows(Node(1), Node(2)) && !Scope::Remote.shows(Node(1), Node(1)));
/// ```
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Processes on the same node.
    Local,
    /// Processes on other nodes.
    Remote,
    /// All processes.
    Global,
    /// Only the process itself. The value stays in its memory.
    Internal,
}

impl Scope {
    /// Whether a process on `viewer` sees what a process on `host` has put in this scope.
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

/// A value that a process puts under a key, and its scope.
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Entry {
    /// The processes that see it.
    pub scope: Scope,
    /// The value.
    pub value: Value,
}

impl Entry {
    /// About how many bytes it takes, with its key.
    #[must_use]
    pub fn size(&self, key: &str) -> usize {
        key.len() + self.value.size() + 64
    }
}

/// The business card of a process: everything that it has committed.
#[derive(Wire, Clone, Debug, Default, PartialEq)]
pub struct BusinessCard {
    /// How often the rank was started again before this process.
    pub restarts: u32,
    /// How often the process has committed; 0: not yet.
    pub version: u64,
    /// The entries, by key.
    pub entries: BTreeMap<String, Entry>,
}

impl BusinessCard {
    /// Applies a commit: its entries replace those under the same keys.
    pub fn commit(&mut self, entries: impl IntoIterator<Item = (String, Entry)>) {
        self.version += 1;
        self.entries.extend(entries);
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        64 + self.entries.iter().map(|(key, entry)| entry.size(key)).sum::<usize>()
    }

    /// The part that a process on `viewer` sees of the business card of one on `host`.
    #[must_use]
    pub fn seen_from(&self, host: Node, viewer: Node) -> BusinessCard {
        let seen = self.entries.iter().filter(|(_, entry)| entry.scope.shows(host, viewer));
        let entries = seen.map(|(key, entry)| (key.clone(), entry.clone())).collect();
        BusinessCard { restarts: self.restarts, version: self.version, entries }
    }
}
