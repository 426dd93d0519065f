//! The engine: a thread that drives an interface, so that a process that computes still answers.

use crate::{
    Error, Interface,
    wait::{Shared, Spinning},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// A thread that drives an interface while this value lives: application bypass.
///
/// It sleeps when there is nothing to do, and leaves driving to threads that wait on the interface
/// while there are any.
///
/// ```
/// # use petasos_portals::{ProcessMap, Config, Error};
/// # use petasos_fabric::Endpoint;
/// # use std::sync::Arc;
/// use petasos_portals::{Engine, Interface};
///
/// # let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// # let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// # let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// let engine = Engine::start(&interface)?;
/// // Puts and gets of others are answered now, whatever this thread computes.
/// assert!(matches!(Engine::start(&interface), Err(Error::InUse(_))));
/// drop(engine);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    interface: Interface,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Begins to drive. An interface has one engine at a time.
    ///
    /// # Errors
    /// [`Error::InUse`] if the interface has an engine, [`Error::System`] if the system gives no
    /// thread.
    pub fn start(interface: &Interface) -> Result<Engine, Error> {
        if !interface.shared.lock().drivers.add_engine() {
            return Err(Error::InUse("the engine"));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, ends) = (Arc::clone(&interface.shared), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("petasos-portals".to_owned())
            .spawn(move || drive(&shared, &ends))
            .map_err(|error| {
                interface.shared.lock().drivers.remove_engine();
                Error::System(error.to_string())
            })?;
        Ok(Engine { interface: interface.clone(), stop, thread: Some(thread) })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.interface.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by itself.
            let _ = thread.join();
        }
    }
}

fn drive(shared: &Shared, stop: &AtomicBool) {
    let mut idle = Spinning::new(shared.idle);
    let mut state = shared.lock();
    let mut passes = state.drivers.passes();
    // After an abort it goes on: other processes are served as long as there is an engine.
    while !stop.load(Ordering::SeqCst) {
        // A thread that waits drives, too, and is nearer to the one that wants the result.
        if state.drivers.engine_is_to_drive(passes) {
            if !idle.pass(&mut state) {
                let _ = idle.count_idle();
            }
            passes = state.drivers.passes();
            if idle.is_over() {
                state = shared.sleep_armed(state, None);
                idle.restart();
            } else if idle.is_full() {
                shared.leave(state);
                std::hint::spin_loop();
                state = shared.lock();
            } else {
                state.network.relax();
            }
        } else {
            passes = state.drivers.passes();
            state = shared.watch(state);
            idle.restart();
        }
    }
    state.drivers.remove_engine();
    // From now on, threads that wait drive by themselves.
    shared.leave(state);
}
