//! The contract, kept by the guide's transport, built in.

use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_guide::Seq;
use petasos_plugin::Packets;

struct Sockets {
    directory: tempfile::TempDir,
    time: RealTime,
}

impl Default for Sockets {
    fn default() -> Sockets {
        Sockets { directory: tempfile::tempdir().unwrap(), time: RealTime::default() }
    }
}

impl Fixture for Sockets {
    fn fresh(&self) -> Address {
        let path = self.directory.path().join(self.time.name());
        Address::parse(&format!("seq://{}", path.display())).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Packets::<Seq>::open(at, None).unwrap())
    }

    fn now(&self) -> Time {
        self.time.now()
    }
}

conformance!(Sockets::default());
conformance!(faulty, Sockets::default());
