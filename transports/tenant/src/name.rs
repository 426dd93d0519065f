//! What endpoints of tenants are called.

use std::{fmt, str::FromStr};

/// The scheme of addresses.
pub const SCHEME: &str = "tenant";

/// An endpoint of a tenant: `NAME@TENANT`, as in `tenant://files@alice`.
///
/// Each part has 1 to [`Name::MAX`] letters, digits and `-._`. A tenant is given its part by the
/// broker; what is before the `@` is its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    endpoint: String,
    tenant: String,
}

/// Why a text is no [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` names no endpoint of a tenant: write it as tenant://NAME@TENANT, with letters, digits \
     and -._, {max} at most in each part",
    .0.escape_debug(), max = Name::MAX
)]
pub struct BadName(String);

impl Name {
    /// The longest part, in bytes.
    pub const MAX: usize = 64;

    /// The endpoint of this name at a tenant.
    ///
    /// # Errors
    /// [`BadName`] if one of them has a character that it may not have, is empty or too long.
    pub fn new(endpoint: &str, tenant: &str) -> Result<Name, BadName> {
        if !is_part(endpoint) || !is_part(tenant) {
            return Err(BadName(format!("{endpoint}@{tenant}")));
        }
        Ok(Name { endpoint: endpoint.to_owned(), tenant: tenant.to_owned() })
    }

    /// What the tenant calls it.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{SCHEME}://{self}")
    }
}

/// Whether this can be the name of a tenant, or that of an endpoint there.
#[must_use]
pub fn is_part(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=Name::MAX).contains(&text.len()) && text.bytes().all(plain)
}

impl FromStr for Name {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Name, BadName> {
        let (endpoint, tenant) = text.split_once('@').ok_or_else(|| BadName(text.to_owned()))?;
        Name::new(endpoint, tenant)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.endpoint, self.tenant)
    }
}

/// What a program asks for when it opens an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The name; `None` for any.
    pub name: Option<Name>,
    /// The broker's socket, if the address says where that is.
    pub broker: Option<String>,
}

impl Asked {
    /// Reads `tenant://NAME@TENANT` or `tenant://*`, each with `?broker=PATH` or without.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn parse(url: &str) -> Result<Asked, BadName> {
        let bad = || BadName(url.to_owned());
        let rest = url.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix("://"));
        let rest = rest.ok_or_else(bad)?;
        let (name, broker) = match rest.split_once('?') {
            None => (rest, None),
            Some((name, query)) => {
                let path = query.strip_prefix("broker=").filter(|path| path.starts_with('/'));
                (name, Some(path.ok_or_else(bad)?.to_owned()))
            }
        };
        let name = if name == "*" { None } else { Some(name.parse()?) };
        Ok(Asked { name, broker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places() {
        let asked = Asked::parse("tenant://files@alice").unwrap();
        assert_eq!(asked.broker, None);
        let name = asked.name.unwrap();
        assert_eq!((name.endpoint(), name.tenant()), ("files", "alice"));
        assert_eq!(name.url(), "tenant://files@alice");
        let asked = Asked::parse("tenant://*?broker=/run/b.sock").unwrap();
        assert_eq!((asked.name, asked.broker.as_deref()), (None, Some("/run/b.sock")));
        let long = "x".repeat(65);
        for bad in [
            "shm://a@b",
            "tenant://a",
            "tenant://@b",
            "tenant://a@",
            "tenant://a@b@c",
            "tenant://a/b@c",
            "tenant://a@b?x=/y",
            "tenant://a@b?broker=y",
            &format!("tenant://{long}@b"),
        ] {
            assert!(Asked::parse(bad).is_err(), "{bad}");
        }
    }
}
