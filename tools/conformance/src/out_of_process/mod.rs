//! The probes with two sides: endpoints in turn in the test's process, and each other one in a
//! process of its own, on another host if wanted.
//!
//! The first endpoint of a probe is here, the second on the other side, the third here, and so on.
//! So one of a pair is there: messages cross the network, put and get access the memory of another
//! host, and an endpoint that is killed dies as processes do, by a signal. An endpoint of the other
//! side is driven over the standard input and output of its process: each call there and back, and
//! the changes of memory that both sides know.
//!
//! Without anything else the other side is this test binary, started again on this host. On another
//! one it is what the variable [`PEER`] says, a command for `sh`; `$PETASOS_CONFORMANCE_SERVE` in
//! it stands for the arguments by which this module's `serve` is found there:
//!
//! ```text
//! export PETASOS_CONFORMANCE_PEER='ssh node7 env PETASOS_OFI_NETWORK=ofi+verbs://10.1.0.7 \
//!     /shared/conformance $PETASOS_CONFORMANCE_SERVE'
//! PETASOS_OFI_NETWORK=ofi+verbs://10.1.0.6 /shared/conformance networks::out_of_process
//! ```
//!
//! It is run once for each endpoint there, so it should start quickly (with `ssh`: a shared
//! connection, `ControlMaster`). The endpoint dies when its standard input ends; the command must
//! end after it. Both sides must be the same binary. [`PATIENCE`] is for slow machines: a number by
//! which the time is multiplied that a probe waits for what must happen. What a transport itself
//! gives a peer, to shake hands for instance, stays as it is.
//!
//! What this covers: all probes, with both roles on both sides wherever three endpoints or more are
//! there; in a pair the second is the one that is away. An endpoint that is away does not sleep:
//! the probes of sleeping and waking look at the one that is here, which is woken by a process of
//! another host. Its memory is compared before and after each wait, so a byte that is written where
//! it must not be is seen if it is there at one of these times. Nothing is measured by it, as each
//! call takes a round trip.

mod end;
mod errors;
mod memory;
mod pipe;
mod protocol;
mod serve;
mod shadows;

pub use serve::serve;

use crate::Fixture;
use end::{End, Shared};
use petasos_fabric::{Address, Endpoint, Time};
use pipe::Pipe;
use protocol::Request;
use std::{
    collections::HashMap,
    env,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// Names the variable with the command that starts a process on the other side.
pub const PEER: &str = "PETASOS_CONFORMANCE_PEER";

/// Names the variable with the factor for limits of time.
pub const PATIENCE: &str = "PETASOS_CONFORMANCE_PATIENCE";

/// Why an endpoint of another process has no address space for a probe.
pub(crate) const ELSEWHERE: &str = "the address space is another process's";

/// Names the variable with the arguments for the other side.
const SERVE: &str = "PETASOS_CONFORMANCE_SERVE";

/// A fixture whose every second endpoint is in another process.
pub struct OutOfProcess<F> {
    inner: F,
    serve: String,
    patience: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    addresses: u64,
    /// Addresses of the other side, with the processes that gave them and have no endpoint yet.
    there: HashMap<Address, Option<Pipe>>,
    /// A process that was asked for nothing but whether it can be used.
    spare: Option<Pipe>,
    ends: Vec<Weak<Shared>>,
}

impl<F: Fixture> OutOfProcess<F> {
    /// Over this transport. `serve` is the path of the test that calls [`serve`](serve()), with its
    /// crate in front.
    ///
    /// # Panics
    /// If [`PATIENCE`] is set to anything but a number from 1 on.
    pub fn new(inner: F, serve: &str) -> OutOfProcess<F> {
        let test = serve.split_once("::").map_or(serve, |(_, test)| test);
        let patience = env::var(PATIENCE).map_or(1, |factor| {
            let factor = factor.parse().ok().filter(|factor| *factor >= 1);
            factor.unwrap_or_else(|| panic!("{PATIENCE} is a number from 1 on"))
        });
        let serve = format!("{test} --exact --ignored --nocapture --test-threads=1");
        OutOfProcess { inner, serve, patience, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> Pipe {
        if let Some(spare) = self.state().spare.take() {
            return spare;
        }
        let command = match env::var_os(PEER) {
            Some(peer) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(peer);
                shell
            }
            None => {
                let mut again = Command::new(env::current_exe().expect("a test binary's path"));
                again.args(self.serve.split(' '));
                again
            }
        };
        let mut command = command;
        command.env(SERVE, &self.serve);
        Pipe::start(command)
    }
}

impl<F: Fixture> Fixture for OutOfProcess<F> {
    fn fresh(&self) -> Address {
        let number = {
            let mut state = self.state();
            state.addresses += 1;
            state.addresses
        };
        if number % 2 == 1 {
            return self.inner.fresh();
        }
        let mut pipe = self.start();
        let address: String = pipe.ask(&Request::Fresh);
        let address = errors::address(&address);
        self.state().there.insert(address.clone(), Some(pipe));
        address
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let Some(pipe) = self.state().there.get_mut(at).map(Option::take) else {
            return self.inner.open(at);
        };
        let (end, shared) = End::open(pipe.unwrap_or_else(|| self.start()), at);
        let mut state = self.state();
        state.ends.retain(|end| end.strong_count() > 0);
        state.ends.push(std::sync::Arc::downgrade(&shared));
        Box::new(end)
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn missing(&self) -> Option<String> {
        let here = self.inner.missing();
        if here.is_some() {
            return here;
        }
        let mut pipe = self.start();
        let there: Option<String> = pipe.ask(&Request::Missing);
        self.state().spare = Some(pipe);
        there
    }

    fn keeps_memory(&self) -> Option<&'static str> {
        self.inner.keeps_memory()
    }

    fn holds_up_others(&self) -> Option<&'static str> {
        self.inner.holds_up_others()
    }

    fn refuses(&self) -> bool {
        self.inner.refuses()
    }

    fn pass(&self, idle: u32) {
        self.inner.pass(idle);
    }

    fn settle(&self) {
        let ends: Vec<_> = self.state().ends.iter().filter_map(Weak::upgrade).collect();
        ends.iter().for_each(|end| end.settle());
    }

    fn kill(&self, endpoint: Box<dyn Endpoint>) {
        self.inner.kill(endpoint);
    }

    fn deadline(&self) -> Duration {
        // Each step takes round trips.
        self.inner.deadline() * 2 * self.patience
    }
}
