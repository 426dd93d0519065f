//! The contract, kept by one address over shared memory and TCP: between endpoints of one node, by
//! the network alone, and between nodes.

use petasos_auto::{Auto, Member, Node, Places, Reach};
use petasos_conformance::{Fixture, RealTime, conformance, free_port};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_shm::Shm;
use petasos_tcp::{Config, TcpEndpoint};

/// Where the endpoints of a fixture are to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// On one node: shared memory.
    Near,
    /// On one node, without shared memory.
    Forced,
    /// On nodes of their own, which both have shared memory.
    Far,
}

struct OverBoth {
    time: RealTime,
    lie: Lie,
}

impl OverBoth {
    fn new(lie: Lie) -> OverBoth {
        OverBoth { time: RealTime::default(), lie }
    }
}

impl Fixture for OverBoth {
    fn fresh(&self) -> Address {
        let name = self.time.name();
        let node = match self.lie {
            Lie::Far => Node::of(name.as_bytes()),
            Lie::Near | Lie::Forced => Node::here(),
        };
        let mut ways =
            vec![Address::parse(&format!("tcp://127.0.0.1:{}", free_port("127.0.0.1"))).unwrap()];
        if self.lie != Lie::Forced {
            ways.insert(0, Address::parse(&format!("shm://{name}")).unwrap());
        }
        Places::compose(node, &ways).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let Places::Known { node, ways } = Places::parse(at).unwrap() else { panic!("{at}") };
        let member = |way: &Address| match way.scheme() {
            "shm" => Member { endpoint: Box::new(Shm::open(way).unwrap()), reach: Reach::Node },
            _ => {
                let endpoint = TcpEndpoint::open(way, Config::default()).unwrap();
                Member { endpoint: Box::new(endpoint), reach: Reach::Network }
            }
        };
        Box::new(Auto::open(node, ways.iter().map(member).collect()).unwrap())
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
    conformance!(OverBoth::new(Lie::Near));
    conformance!(faulty, OverBoth::new(Lie::Near));
}

mod forced_to_tcp {
    use super::*;
    conformance!(OverBoth::new(Lie::Forced));
    conformance!(faulty, OverBoth::new(Lie::Forced));
}

mod far {
    use super::*;
    conformance!(OverBoth::new(Lie::Far));
}
