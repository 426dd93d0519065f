//! The engine: a thread that drives an interface, so that a process that computes still answers.

use crate::{Error, Interface, interface::Shared};
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
        if !Engine::register(&interface.shared, true) {
            return Err(Error::InUse("the engine"));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, ends) = (Arc::clone(&interface.shared), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("petasos-portals".to_owned())
            .spawn(move || {
                // After an abort it goes on: others are served as long as there is an engine.
                shared.driver.serve(|| ends.load(Ordering::SeqCst));
                Engine::register(&shared, false);
            })
            .map_err(|error| {
                Engine::register(&interface.shared, false);
                Error::System(error.to_string())
            })?;
        Ok(Engine { interface: interface.clone(), stop, thread: Some(thread) })
    }

    /// There is an engine, or none; false if that is so already.
    fn register(shared: &Shared, is: bool) -> bool {
        std::mem::replace(&mut shared.driver.lock().engine, is) != is
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.interface.shared.driver.interrupt();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by itself.
            let _ = thread.join();
        }
    }
}
