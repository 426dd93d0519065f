//! The fabric's contract between two tenants of one broker.

use petasos_broker::{Broker, Config, Stop};
use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use std::{
    os::unix::process::parent_id,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

const TENANTS: [&str; 2] = ["alice", "bob"];

/// Endpoints of both tenants in turn, of a broker that all fixtures of a process share, and those of
/// the processes that it starts.
struct Tenants {
    /// The process with the broker.
    owner: u32,
    time: RealTime,
    opened: AtomicU64,
}

type Serving = (Stop, JoinHandle<()>);

/// The broker of this process, and how many fixtures use it.
static SERVING: Mutex<(usize, Option<Serving>)> = Mutex::new((0, None));

fn directory(owner: u32) -> PathBuf {
    std::env::temp_dir().join(format!("petasos-broker-{owner}"))
}

/// Whether this process is the other side of a test.
fn has_parent() -> bool {
    directory(parent_id()).exists()
}

fn start() -> Serving {
    let directory = directory(std::process::id());
    std::fs::create_dir(&directory).unwrap();
    let mut config = Config::new(directory.join("control"));
    for tenant in TENANTS {
        config.add_tenant(tenant, directory.join(tenant));
    }
    config.allow("*", "*").unwrap();
    // The suite has hundreds of endpoints at a time.
    for tenant in TENANTS {
        config.set_limit(tenant, "outstanding_bytes", 4 << 30).unwrap();
        config.set_limit(tenant, "connections", 10_000).unwrap();
        config.set_limit(tenant, "endpoints", 10_000).unwrap();
    }
    let mut broker = Broker::open(config, None).unwrap();
    (broker.stop(), std::thread::spawn(move || broker.run()))
}

impl Default for Tenants {
    fn default() -> Tenants {
        let owner = if has_parent() { parent_id() } else { std::process::id() };
        if owner == std::process::id() {
            let (users, serving) = &mut *SERVING.lock().unwrap_or_else(PoisonError::into_inner);
            *users += 1;
            serving.get_or_insert_with(start);
        }
        Tenants { owner, time: RealTime::default(), opened: AtomicU64::new(0) }
    }
}

impl Drop for Tenants {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        let (users, serving) = &mut *SERVING.lock().unwrap_or_else(PoisonError::into_inner);
        *users -= 1;
        if *users == 0
            && let Some((stop, thread)) = serving.take()
        {
            stop.stop();
            thread.join().expect("the broker does not fail");
            std::fs::remove_dir_all(directory(self.owner)).unwrap();
        }
    }
}

impl Fixture for Tenants {
    fn fresh(&self) -> Address {
        let nth = self.opened.fetch_add(1, Ordering::Relaxed);
        let tenant = TENANTS[nth as usize % 2];
        Address::parse(&format!("tenant://{}@{tenant}", self.time.name())).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let (_, tenant) = at.rest().split_once('@').unwrap();
        let at = format!("{at}?broker={}", directory(self.owner).join(tenant).display());
        Box::new(petasos_tenant::Endpoint::open(&at.parse().unwrap(), None).unwrap())
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn refuses(&self) -> bool {
        true
    }
}

conformance!(Tenants::default());
conformance!(out_of_process, Tenants::default());
conformance!(stopped, Tenants::default());
