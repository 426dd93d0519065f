//! The contract, kept by one address over shared memory and TCP: between endpoints of one node, by
//! the network alone, and between nodes.

use petasos_auto::{Auto, AutoAddress, Member, Node, Scope};
use petasos_conformance::{Fixture, RealTime, conformance, free_port};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_shm::Shm;
use petasos_tcp::{Config, TcpEndpoint};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the endpoints of a fixture are to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// On one node: shared memory.
    Near,
    /// On one node, without shared memory.
    Forced,
    /// On nodes of their own, which both have shared memory.
    Far,
    /// Every third one on a node of its own, the first included: some peers of an endpoint are
    /// reached over shared memory, others by the network.
    Mixed,
}

struct OverBoth {
    time: RealTime,
    placement: Placement,
    opened: AtomicUsize,
}

impl OverBoth {
    fn new(placement: Placement) -> OverBoth {
        OverBoth { time: RealTime::default(), placement, opened: AtomicUsize::new(0) }
    }
}

impl Fixture for OverBoth {
    fn fresh(&self) -> Address {
        let name = self.time.name();
        let node = match self.placement {
            Placement::Far => Node::of(name.as_bytes()),
            Placement::Mixed if self.opened.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) => {
                Node::of(name.as_bytes())
            }
            Placement::Mixed => Node::local(),
            Placement::Near | Placement::Forced => Node::local(),
        };
        let mut addresses =
            vec![Address::parse(&format!("tcp://127.0.0.1:{}", free_port("127.0.0.1"))).unwrap()];
        if self.placement != Placement::Forced {
            addresses.insert(0, Address::parse(&format!("shm://{name}")).unwrap());
        }
        AutoAddress::compose(node, &addresses).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let AutoAddress::Whole { node, members } = AutoAddress::parse(at).unwrap() else {
            panic!("{at}")
        };
        let member = |address: &Address| match address.scheme() {
            "shm" => Member { endpoint: Box::new(Shm::open(address).unwrap()), scope: Scope::Node },
            _ => {
                let endpoint = TcpEndpoint::open(address, Config::default()).unwrap();
                Member { endpoint: Box::new(endpoint), scope: Scope::Network }
            }
        };
        Box::new(Auto::open(node, members.iter().map(member).collect()).unwrap())
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn refuses(&self) -> bool {
        true
    }
}

mod near {
    use super::*;
    conformance!(OverBoth::new(Placement::Near));
    conformance!(faulty, OverBoth::new(Placement::Near));
    conformance!(out_of_process, OverBoth::new(Placement::Near));
    conformance!(stopped, OverBoth::new(Placement::Near));
    conformance!(attended, OverBoth::new(Placement::Near));
    conformance!(passive, OverBoth::new(Placement::Near));
}

mod forced_to_tcp {
    use super::*;
    conformance!(OverBoth::new(Placement::Forced));
    conformance!(faulty, OverBoth::new(Placement::Forced));
}

mod far {
    use super::*;
    conformance!(OverBoth::new(Placement::Far));
    conformance!(stopped, OverBoth::new(Placement::Far));
    conformance!(passive, OverBoth::new(Placement::Far));
}

mod mixed {
    use super::*;
    conformance!(OverBoth::new(Placement::Mixed));
    conformance!(faulty, OverBoth::new(Placement::Mixed));
}
