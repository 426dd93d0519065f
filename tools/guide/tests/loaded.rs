//! The contract, kept by the guide's transport, loaded.

use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_plugin::Found;
use std::{path::PathBuf, sync::LazyLock};

struct Loaded {
    directory: tempfile::TempDir,
    time: RealTime,
}

impl Default for Loaded {
    fn default() -> Loaded {
        Loaded { directory: tempfile::tempdir().unwrap(), time: RealTime::default() }
    }
}

/// The library that cargo builds beside this test.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libpetasos_guide.so")
}

static FOUND: LazyLock<Found> =
    LazyLock::new(|| petasos_plugin::load(library().as_os_str(), &["tcp"]));

impl Fixture for Loaded {
    fn fresh(&self) -> Address {
        let path = self.directory.path().join(self.time.name());
        Address::parse(&format!("seq://{}", path.display())).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(FOUND.plugins[0].open(at, None).unwrap())
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn refuses(&self) -> bool {
        true
    }
}

conformance!(faulty, Loaded::default());
conformance!(stopped, Loaded::default());
conformance!(out_of_process, Loaded::default());
