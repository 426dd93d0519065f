//! What stands behind `shm://`: the name of a socket.
//!
//! | address | socket |
//! |---|---|
//! | `shm://NAME` | abstract, of this user: others of this user on this machine (in this network namespace) find it |
//! | `shm://UID@NAME` | abstract, of the user with this number: for endpoints that talk to several users |
//! | `shm:///PATH` | in the file system, which containers can share |
//! | `shm://`, `shm://*` | a random name, for opening only |
//!
//! An abstract socket vanishes with its process. One in the file system is removed by its owner,
//! or by the next one at the same path once no process listens there.

use rustix::{io::Errno, net::SocketAddrUnix};

pub(crate) const SCHEME: &str = "shm";
/// The longest name.
const MAX_NAME: usize = 64;
/// The longest path: what a socket address holds.
const MAX_PATH: usize = 107;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// Of the user that runs this process.
    Plain(String),
    /// Of a user named in the address.
    Of(u32, String),
    Path(String),
}

impl Name {
    /// Checks what stands behind the scheme.
    pub(crate) fn parse(rest: &str) -> Result<Name, String> {
        if rest.starts_with('/') {
            return match rest.len() <= MAX_PATH {
                true => Ok(Name::Path(rest.to_owned())),
                false => Err(format!("a path of {} bytes, {MAX_PATH} at most", rest.len())),
            };
        }
        let (uid, name) = match rest.split_once('@') {
            None => (None, rest),
            Some((uid, name)) => {
                let number = uid.parse().map_err(|_| format!("`{uid}` is no user's number"))?;
                (Some(number), name)
            }
        };
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(format!("a name of {} bytes, from 1 to {MAX_NAME} are right", name.len()));
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-+=:,".contains(&b);
        if !name.bytes().all(plain) {
            return Err("a name has letters, digits and ._-+=:, only".to_owned());
        }
        let name = name.to_owned();
        Ok(uid.map_or_else(|| Name::Plain(name.clone()), |uid| Name::Of(uid, name.clone())))
    }

    /// A name that no other endpoint has.
    pub(crate) fn random(of: Option<u32>, number: u64) -> Name {
        let name = format!("{}-{number:016x}", std::process::id());
        of.map_or_else(|| Name::Plain(name.clone()), |uid| Name::Of(uid, name.clone()))
    }

    /// What stands behind the scheme.
    pub(crate) fn rest(&self) -> String {
        match self {
            Name::Plain(name) => name.clone(),
            Name::Of(uid, name) => format!("{uid}@{name}"),
            Name::Path(path) => path.clone(),
        }
    }

    /// The socket's address. `uid` is the user that runs this process.
    pub(crate) fn socket(&self, uid: u32) -> Result<SocketAddrUnix, Errno> {
        match self {
            Name::Plain(name) => {
                SocketAddrUnix::new_abstract_name(format!("petasos/{uid}/{name}").as_bytes())
            }
            Name::Of(uid, name) => {
                SocketAddrUnix::new_abstract_name(format!("petasos/{uid}@{name}").as_bytes())
            }
            Name::Path(path) => SocketAddrUnix::new(path.as_str()),
        }
    }

    /// Whether a process of the user `theirs` may say that this is its address, to one of `ours`:
    /// else one user could pass for another.
    pub(crate) fn may_be_claimed_by(&self, theirs: u32, ours: u32) -> bool {
        match self {
            Name::Of(uid, _) => *uid == theirs,
            Name::Plain(_) | Name::Path(_) => theirs == ours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_are() {
        for good in ["a", "worker-3", "0@x", "/run/x.sock", &"n".repeat(64)] {
            assert_eq!(Name::parse(good).unwrap().rest(), good);
        }
        for bad in
            ["", "a b", "a/b", "x@y", "1@", &"n".repeat(65), &format!("/{}", "p".repeat(107))]
        {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn whose_names_are() {
        let claims = |name: &str, theirs| Name::parse(name).unwrap().may_be_claimed_by(theirs, 7);
        assert!(claims("x", 7) && claims("/x", 7) && claims("9@x", 9) && claims("7@x", 7));
        assert!(!claims("x", 9) && !claims("/x", 9) && !claims("7@x", 9));
    }
}
