//! The contract, kept by the guide's transport: built in, and loaded.

use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_guide::Seq;
use petasos_plugin::{Found, Packets};
use std::{path::PathBuf, sync::LazyLock};

struct Sockets {
    loaded: bool,
    directory: tempfile::TempDir,
    time: RealTime,
}

impl Sockets {
    fn new(loaded: bool) -> Sockets {
        Sockets { loaded, directory: tempfile::tempdir().unwrap(), time: RealTime::default() }
    }
}

/// The library that cargo builds beside this test.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libpetasos_guide.so")
}

static FOUND: LazyLock<Found> =
    LazyLock::new(|| petasos_plugin::load(library().as_os_str(), &["tcp"]));

impl Fixture for Sockets {
    fn fresh(&self) -> Address {
        let path = self.directory.path().join(self.time.name());
        Address::parse(&format!("seq://{}", path.display())).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        match self.loaded {
            false => Box::new(Packets::<Seq>::open(at, None).unwrap()),
            true => Box::new(FOUND.plugins[0].open(at, None).unwrap()),
        }
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn refuses(&self) -> bool {
        true
    }
}

conformance!(Sockets::new(false));
conformance!(faulty, Sockets::new(true));
conformance!(stopped, Sockets::new(true));
conformance!(out_of_process, Sockets::new(true));
