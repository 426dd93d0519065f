//! `auto://`: the transports that it stands for.

use crate::{OpenError, stays_on_node};
use petasos_auto::{Auto, Member, Node, Scope};
use petasos_fabric::{Address, AddressError, Endpoint};
use std::{fs, net::IpAddr};

/// Opens the members of an `auto://` address by `open`, and puts them under one address.
pub(crate) fn open_members(
    address: &Address,
    mut open: impl FnMut(&str) -> Result<Box<dyn Endpoint>, OpenError>,
) -> Result<Auto, OpenError> {
    let mut members = Vec::new();
    for url in urls(address)? {
        let place = Address::parse(&url)?;
        let scope = match place.scheme() {
            "self" | "auto" => {
                return Err(OpenError::UnknownScheme {
                    scheme: format!("auto://{}://", place.scheme()),
                    known: "shm, tcp, ofi or ucx".to_owned(),
                });
            }
            scheme if stays_on_node(scheme) => Scope::Node,
            _ => Scope::Network,
        };
        members.push(Member { endpoint: open(&url)?, scope });
    }
    if let Some(member) = best_network(address, open) {
        // Before TCP, which is last.
        members.insert(members.len() - 1, member);
    }
    Ok(Auto::open(Node::local(), members)?)
}

/// What is to be opened for an address.
fn urls(address: &Address) -> Result<Vec<String>, AddressError> {
    let rest = address.rest();
    if rest.contains("://") {
        // After the node, if it is a whole address.
        let list = match rest.split_once('/') {
            Some((node, list)) if !node.contains(':') => list,
            _ => rest,
        };
        return Ok(list.split(',').map(str::to_owned).collect());
    }
    let place = if rest == "*" { "127.0.0.1:0" } else { rest };
    Ok(vec!["shm://*".to_owned(), format!("tcp://{place}")])
}

/// An endpoint over an RDMA device, if there may be one, and peers of other nodes shall reach us.
fn best_network(
    address: &Address,
    mut open: impl FnMut(&str) -> Result<Box<dyn Endpoint>, OpenError>,
) -> Option<Member> {
    let (host, _) = address.rest().rsplit_once(':')?;
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    // What goes through a library is not encrypted.
    let encrypted = address.rest().ends_with("?encrypt");
    let nowhere = encrypted
        || host.contains("://")
        || matches!(host, "*" | "localhost")
        || ip.is_ok_and(|ip| ip.is_loopback());
    // Loading the library takes longer than opening all else: only where there is a device.
    let found = |class: &str| fs::read_dir(class).is_ok_and(|mut devices| devices.next().is_some());
    let classes = ["/sys/class/infiniband", "/sys/class/cxi"];
    if nowhere || !cfg!(feature = "ofi") || !classes.into_iter().any(found) {
        return None;
    }
    let endpoint = open(&format!("ofi://{host}:0")).ok()?;
    let by_sockets = endpoint.address().scheme().starts_with("ofi+tcp");
    (!by_sockets).then_some(Member { endpoint, scope: Scope::Network })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, open_auto};
    use petasos_auto::AutoAddress;

    #[test]
    fn what_stands_behind_an_address() {
        let schemes = |url: &str| {
            let endpoint =
                open_auto(&Address::parse(url).unwrap(), &OpenOptions::default()).unwrap();
            let Ok(AutoAddress::Whole { members, .. }) = AutoAddress::parse(endpoint.address())
            else {
                panic!("{}", endpoint.address())
            };
            members.iter().map(|member| member.scheme().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(schemes("auto://*"), ["shm", "tcp"]);
        assert_eq!(schemes("auto://127.0.0.1:0"), ["shm", "tcp"]);
        assert_eq!(schemes("auto://tcp://*"), ["tcp"]);
        assert_eq!(schemes("auto://tcp://[::1]:0,shm://*"), ["shm", "tcp"]);
        let whole = open_auto(&Address::parse("auto://*").unwrap(), &OpenOptions::default());
        let address = whole.unwrap().address().clone();
        let again = open_auto(&address, &OpenOptions::default()).unwrap();
        assert_eq!(*again.address(), address, "the successor of an endpoint at its place");
        for bad in ["auto://self://x", "auto://auto://*", "auto://shm://a,shm://b", "auto://x"] {
            let refused = open_auto(&Address::parse(bad).unwrap(), &OpenOptions::default());
            assert!(refused.is_err(), "{bad}");
        }
    }
}
