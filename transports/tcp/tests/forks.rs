//! A process that forks.

use petasos_conformance::{
    forks::{Child, Overseer, obey},
    processes::PATIENCE,
};
use petasos_fabric::Address;
use petasos_tcp::{Config, TcpEndpoint};
use petasos_testing::{again, fork, role};

fn open() -> TcpEndpoint {
    TcpEndpoint::open(&Address::parse("tcp://127.0.0.1:0").unwrap(), Config::default()).unwrap()
}

#[test]
fn a_child_changes_nothing() {
    if role().is_some() {
        return obey(open(), fork);
    }
    let mut parent = again("a_child_changes_nothing", "parent").start();
    let address = parent.line("at ");
    let mut overseer = Overseer::meet(open(), &address);
    for kind in Child::ALL {
        // Others still find the parent.
        overseer.forks(kind, || drop(Overseer::meet(open(), &address)));
    }
    overseer.end_it();
    assert!(parent.wait(PATIENCE).success());
}
