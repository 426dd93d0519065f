//! The grammar of addresses: `auto://NODE/ADDRESS,ADDRESS` and `auto://HOST:PORT`.

use crate::Node;
use petasos_fabric::{Address, AddressError};

/// The scheme of these addresses.
pub const SCHEME: &str = "auto";
/// The most member addresses in one address.
pub(crate) const MOST: usize = 6;

/// What an address says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AutoAddress {
    /// The whole address: the node of an endpoint, and the addresses of its members.
    Whole {
        /// The node.
        node: Node,
        /// One address for each transport, of different schemes.
        members: Vec<Address>,
    },
    /// The short address: where to ask for the whole one, by the last member's transport.
    Short(String),
}

impl AutoAddress {
    /// Parses an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(address: &Address) -> Result<AutoAddress, &'static str> {
        let rest = address.rest();
        if !rest.contains("://") {
            return match rest.is_empty() || rest == "*" {
                true => Err("it does not say where: write auto://HOST:PORT, or the whole address"),
                false => Ok(AutoAddress::Short(rest.to_owned())),
            };
        }
        let (node, list) = rest.split_once('/').ok_or("it names no node")?;
        let node = Node::parse(node).ok_or("it names no node")?;
        let mut members: Vec<Address> = Vec::new();
        for text in list.split(',') {
            let member = Address::parse(text).map_err(|_| "one of its parts is not an address")?;
            if member.scheme() == SCHEME
                || members.iter().any(|other| other.scheme() == member.scheme())
            {
                return Err("its parts are not of different transports");
            }
            members.push(member);
        }
        match members.len() <= MOST {
            true => Ok(AutoAddress::Whole { node, members }),
            false => Err("it has too many parts"),
        }
    }

    /// The address of an endpoint on this node whose members have these addresses.
    ///
    /// # Errors
    /// It is too long.
    pub fn compose(node: Node, members: &[Address]) -> Result<Address, AddressError> {
        let members: Vec<&str> = members.iter().map(Address::as_str).collect();
        Address::parse(&format!("{SCHEME}://{node}/{}", members.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn there_and_back() {
        let members: Vec<Address> = ["shm://1-a=b", "tcp://[::1]:40", "ofi+tcp;ofi_rxm://h:1"]
            .iter()
            .map(|text| Address::parse(text).unwrap())
            .collect();
        for count in 1..=members.len() {
            let (node, members) = (Node::of(b"x"), members[..count].to_vec());
            let address = AutoAddress::compose(node, &members).unwrap();
            assert_eq!(AutoAddress::parse(&address), Ok(AutoAddress::Whole { node, members }));
        }
        let short = Address::parse("auto://node7:4040").unwrap();
        assert_eq!(AutoAddress::parse(&short), Ok(AutoAddress::Short("node7:4040".into())));
    }

    #[test]
    fn what_is_refused() {
        let node = Node::of(b"x");
        for bad in [
            "auto://",
            "auto://*",
            "auto://shm://x",
            &format!("auto://{node}/shm://x,shm://y"),
            &format!("auto://{node}/shm://x,"),
            &format!("auto://{node}/auto://x"),
            &format!("auto://{node}/a://x,b://x,c://x,d://x,e://x,f://x,g://x"),
        ] {
            assert!(AutoAddress::parse(&Address::parse(bad).unwrap()).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn what_is_read_is_written_so(rest in "[0-9a-f]{15,17}/[a-c:/,]{0,40}") {
            let Ok(address) = Address::parse(&format!("auto://{rest}")) else { return Ok(()) };
            if let Ok(AutoAddress::Whole { node, members }) = AutoAddress::parse(&address) {
                prop_assert_eq!(AutoAddress::compose(node, &members).unwrap(), address);
            }
        }
    }
}
