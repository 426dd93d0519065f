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
/// It sleeps when there is nothing to do, and leaves driving to threads that wait on the interface while
/// there are any.
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
        if std::mem::replace(&mut interface.shared.lock().engine, true) {
            return Err(Error::InUse("the place of the engine"));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, ends) = (Arc::clone(&interface.shared), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("petasos-portals".to_owned())
            .spawn(move || drive(&shared, &ends))
            .map_err(|error| {
                interface.shared.lock().engine = false;
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
    let mut passes = state.passes;
    // That waiting was ended does not end it: others are served as long as there is an engine.
    while !stop.load(Ordering::SeqCst) {
        // Whoever waits drives, too, and is nearer to who wants the result.
        let others = state.drivers > 0 || state.passes != passes;
        if std::mem::take(&mut state.take_over) || !others {
            if !idle.turn(&mut state) {
                let _ = idle.look();
            }
            passes = state.passes;
            if idle.is_over() {
                state = shared.sleep_armed(state, None);
                idle.begin();
            } else if idle.is_full() {
                shared.leave(state);
                std::hint::spin_loop();
                state = shared.lock();
            } else {
                state.endpoint.linger();
            }
        } else {
            passes = state.passes;
            state = shared.watch(state);
            idle.begin();
        }
    }
    state.engine = false;
    // Those who wait drive themselves from now on.
    shared.leave(state);
}
