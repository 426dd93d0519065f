//! A process that forks.

use petasos_conformance::{
    forks::{Child, Overseer, obey},
    processes::PATIENCE,
};
use petasos_fabric::{Address, Attended, AttendedConfig};
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
    oversee("a_child_changes_nothing");
}

/// The thread that drives the parent's endpoint is the parent's.
#[test]
fn a_child_of_a_parent_with_a_thread_changes_nothing() {
    if role().is_some() {
        let end = Attended::new(Box::new(open()), AttendedConfig::default()).unwrap();
        return obey(end, fork);
    }
    oversee("a_child_of_a_parent_with_a_thread_changes_nothing");
}

fn oversee(test: &str) {
    let mut parent = again(test, "parent").start();
    let address = parent.line("at ");
    let mut overseer = Overseer::meet(open(), &address);
    for kind in Child::ALL {
        // Others still find the parent.
        overseer.forks(kind, || drop(Overseer::meet(open(), &address)));
    }
    overseer.end_it();
    assert!(parent.wait(PATIENCE).success());
}
