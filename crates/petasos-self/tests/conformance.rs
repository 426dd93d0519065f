//! The contract, kept inside one process.

use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_self::Local;

#[derive(Default)]
struct InProcess(RealTime);

impl Fixture for InProcess {
    fn fresh(&self) -> Address {
        Address::parse(&format!("self://{}", self.0.name())).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Local::open(at).unwrap())
    }

    fn now(&self) -> Time {
        self.0.now()
    }
}

conformance!(InProcess::default());
conformance!(faulty, InProcess::default());
