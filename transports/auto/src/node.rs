//! Which node this is: which processes can share memory.

use sha2::{Digest, Sha256};
use std::{fmt, fs};

/// Processes that can reach each other over shared memory: of one boot of one kernel, one network
/// name space (names of sockets are those of that) and one user. A hash of the three, so that none
/// of them is revealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(u64);

impl Node {
    /// The node of this process. If the system does not tell, it is a node of its own.
    #[must_use]
    pub fn local() -> Node {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let space = fs::read_link("/proc/self/ns/net");
        let (Ok(boot), Ok(space)) = (boot, space) else {
            return Node(petasos_fabric::Incarnation::random().get());
        };
        let user = rustix::process::geteuid().as_raw();
        let text = format!("petasos node\n{}\n{}\n{user}", boot.trim(), space.display());
        Node::of(text.as_bytes())
    }

    /// The node with this name: to tell apart what [`Node::local`] does not.
    #[must_use]
    pub fn of(name: &[u8]) -> Node {
        let hash = Sha256::digest(name);
        Node(u64::from_le_bytes(std::array::from_fn(|at| hash[at])))
    }

    /// The node written so in an address.
    pub(crate) fn parse(text: &str) -> Option<Node> {
        let plain = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let number = (text.len() == 16 && text.bytes().all(plain)).then_some(text)?;
        u64::from_str_radix(number, 16).ok().map(Node)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn here_is_here() {
        assert_eq!(Node::local(), Node::local());
        assert_ne!(Node::local(), Node::of(b"elsewhere"));
        assert_eq!(Node::parse(&Node::local().to_string()), Some(Node::local()));
        for bad in ["", "123", "0123456789ABCDEF", "+123456789abcdef", "0123456789abcdef0"] {
            assert_eq!(Node::parse(bad), None, "{bad}");
        }
    }
}
