//! The grammar of addresses: `auto://NODE/ADDRESS,ADDRESS` and `auto://HOST:PORT`.

use crate::Node;
use petasos_fabric::{Address, AddressError};

/// The scheme of these addresses.
pub const SCHEME: &str = "auto";
/// The most member addresses in one address.
pub(crate) const MOST: usize = 6;

/// What an address says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// The whole address: the node of an endpoint, and the addresses of its members.
    Known {
        /// The node.
        node: Node,
        /// One address for each transport, of different schemes.
        ways: Vec<Address>,
    },
    /// The short address: where to ask for the whole one, by the last member's transport.
    Asked(String),
}

impl Places {
    /// Parses an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(address: &Address) -> Result<Places, &'static str> {
        let rest = address.rest();
        if !rest.contains("://") {
            return match rest.is_empty() || rest == "*" {
                true => Err("it does not say where: write auto://HOST:PORT, or the whole address"),
                false => Ok(Places::Asked(rest.to_owned())),
            };
        }
        let (node, list) = rest.split_once('/').ok_or("it names no node")?;
        let node = Node::parse(node).ok_or("it names no node")?;
        let mut ways: Vec<Address> = Vec::new();
        for way in list.split(',') {
            let way = Address::parse(way).map_err(|_| "one of its parts is not an address")?;
            if way.scheme() == SCHEME || ways.iter().any(|other| other.scheme() == way.scheme()) {
                return Err("its parts are not of different transports");
            }
            ways.push(way);
        }
        match ways.len() <= MOST {
            true => Ok(Places::Known { node, ways }),
            false => Err("it has too many parts"),
        }
    }

    /// The address of an endpoint on this node whose members have these addresses.
    ///
    /// # Errors
    /// It is too long.
    pub fn compose(node: Node, ways: &[Address]) -> Result<Address, AddressError> {
        let ways: Vec<&str> = ways.iter().map(Address::as_str).collect();
        Address::parse(&format!("{SCHEME}://{node}/{}", ways.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn there_and_back() {
        let ways: Vec<Address> = ["shm://1-a=b", "tcp://[::1]:40", "ofi+tcp;ofi_rxm://h:1"]
            .iter()
            .map(|text| Address::parse(text).unwrap())
            .collect();
        for count in 1..=ways.len() {
            let (node, ways) = (Node::of(b"x"), ways[..count].to_vec());
            let address = Places::compose(node, &ways).unwrap();
            assert_eq!(Places::parse(&address), Ok(Places::Known { node, ways }));
        }
        let short = Address::parse("auto://node7:4040").unwrap();
        assert_eq!(Places::parse(&short), Ok(Places::Asked("node7:4040".into())));
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
            assert!(Places::parse(&Address::parse(bad).unwrap()).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn what_is_read_is_written_so(rest in "[0-9a-f]{15,17}/[a-c:/,]{0,40}") {
            let Ok(address) = Address::parse(&format!("auto://{rest}")) else { return Ok(()) };
            if let Ok(Places::Known { node, ways }) = Places::parse(&address) {
                prop_assert_eq!(Places::compose(node, &ways).unwrap(), address);
            }
        }
    }
}
