//! Where an endpoint is found: a URL whose scheme names the transport.

use std::{convert::Infallible, fmt, str::FromStr, sync::Arc};

/// The address of an endpoint: `SCHEME://REST`, as in `shm://worker-3` or `tcp://[::1]:4040`.
///
/// Cheap to clone. At most [`Address::MAX`] bytes of printable ASCII, so that it can travel in
/// headers, keys and error messages without further checks; what `REST` means is for the
/// transport to say.
///
/// ```
/// use petasos_fabric::{Address, AddressError};
///
/// let address: Address = "tcp://[::1]:4040".parse()?;
/// assert_eq!((address.scheme(), address.rest()), ("tcp", "[::1]:4040"));
/// assert!(matches!(Address::parse("node7:4040"), Err(AddressError::NoScheme(_))));
/// # Ok::<(), AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(Arc<str>);

/// Why a text is not an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// No `://` in it, or nothing before it.
    #[error("`{0}` has no scheme: write it as shm://NAME or tcp://HOST:PORT")]
    NoScheme(String),
    /// Longer than [`Address::MAX`].
    #[error("an address of {0} bytes is too long: at most {max} are allowed", max = Address::MAX)]
    TooLong(usize),
    /// A byte that is not printable ASCII, or a scheme with characters other than `a-z0-9+-;_`.
    #[error("`{}` has a character that an address may not have", .0.escape_debug())]
    BadCharacter(String),
}

impl Address {
    /// The longest address, in bytes.
    pub const MAX: usize = 200;

    /// Checks `text` and makes an address of it.
    ///
    /// # Errors
    /// [`AddressError`], which says what is wrong with `text`.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        if text.len() > Self::MAX {
            return Err(AddressError::TooLong(text.len()));
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(AddressError::BadCharacter(text.to_owned()));
        }
        let scheme = match text.split_once("://") {
            Some((scheme, _)) if !scheme.is_empty() => scheme,
            _ => return Err(AddressError::NoScheme(text.to_owned())),
        };
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-;_".contains(&b);
        if !scheme.bytes().all(plain) {
            return Err(AddressError::BadCharacter(text.to_owned()));
        }
        Ok(Address(text.into()))
    }

    /// The part before `://`: which transport.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// The part after `://`: where, in the transport's own terms.
    #[must_use]
    pub fn rest(&self) -> &str {
        self.0.split_once("://").map_or("", |(_, rest)| rest)
    }

    /// The whole URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Address {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Address, AddressError> {
        Address::parse(text)
    }
}

impl TryFrom<&str> for Address {
    type Error = AddressError;
    fn try_from(text: &str) -> Result<Address, AddressError> {
        Address::parse(text)
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;
    fn try_from(text: String) -> Result<Address, AddressError> {
        Address::parse(&text)
    }
}

impl TryFrom<&String> for Address {
    type Error = AddressError;
    fn try_from(text: &String) -> Result<Address, AddressError> {
        Address::parse(text)
    }
}

impl From<&Address> for Address {
    fn from(address: &Address) -> Address {
        address.clone()
    }
}

/// For functions that take an address, or what becomes one.
impl From<Infallible> for AddressError {
    fn from(never: Infallible) -> AddressError {
        match never {}
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_address() {
        let address: Address = "ofi+verbs;ofi_rxm://node7:4040".parse().unwrap();
        assert_eq!(address.scheme(), "ofi+verbs;ofi_rxm");
        assert_eq!(address.rest(), "node7:4040");
    }

    #[test]
    fn what_is_refused() {
        for bad in ["", "x", "://x", "tcp:/x", "TCP://x", "tcp://a b", "tcp://\u{e9}"] {
            assert!(Address::parse(bad).is_err(), "{bad:?} was taken");
        }
        assert!(Address::parse(&format!("tcp://{}", "x".repeat(200))).is_err());
    }

    #[test]
    fn a_text_that_cannot_be_printed_is_escaped_only_when_it_is_shown() {
        let AddressError::BadCharacter(text) = Address::parse("tcp://\u{10}").unwrap_err() else {
            panic!("of another kind");
        };
        // An escape is longer than what it stands for: the sender of such a text makes us keep no
        // more.
        assert_eq!(text, "tcp://\u{10}");
        assert!(AddressError::BadCharacter(text).to_string().contains(r"tcp://\u{10}"));
    }
}
