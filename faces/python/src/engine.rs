//! The engine as Python programs see it.

use crate::{
    array::Array,
    bulk::Bulk,
    call::Calls,
    errors, fork,
    home::Owned,
    numbers::Element,
    operation::{self, Done},
    state::{Handler, State},
};
use petasos::{
    Access, CallOptions, EngineConfig, Idle, OpenOptions, Refused, SecretBytes,
    fabric::AttendedConfig,
};
use pyo3::{exceptions::PyValueError, prelude::*};
use std::{
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    rc::Rc,
    time::Duration,
};

/// Makes and serves calls over one endpoint. It belongs to the thread that opens it.
#[pyclass(frozen, module = "petasos._native")]
pub(crate) struct Engine {
    owned: Owned<Inner>,
    /// Where peers reach it.
    #[pyo3(get)]
    address: String,
}

struct Inner {
    state: Rc<State>,
    fd: Option<OwnedFd>,
}

/// A time in seconds; infinity is no limit.
pub(crate) fn seconds(what: &str, seconds: f64) -> PyResult<Duration> {
    if seconds == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{what} is a time in seconds, not {seconds}")))
}

/// Settings of an engine, by the names of `EngineConfig`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    timeout: Option<f64>,
    patience: Option<f64>,
    idle: Option<f64>,
    spin: bool,
    refused: Option<String>,
    calls_per_peer: Option<u16>,
    calls_in_all: Option<usize>,
    queue_per_peer: Option<usize>,
    max_body: Option<u64>,
}

impl Settings {
    fn config(self) -> PyResult<EngineConfig> {
        let mut config = EngineConfig::default();
        let Settings { timeout, patience, idle, spin, refused, .. } = self;
        if let Some(timeout) = timeout {
            config.timeout = seconds("timeout", timeout)?;
        }
        if let Some(patience) = patience {
            config.patience = seconds("patience", patience)?;
        }
        match idle {
            _ if spin => config.idle = Idle::Spin,
            Some(0.0) => config.idle = Idle::Sleep,
            Some(time) => config.idle = Idle::Adaptive(seconds("idle", time)?),
            None => {}
        }
        config.refused = match refused.as_deref() {
            None => config.refused,
            Some("wait") => Refused::Wait,
            Some("fail") => Refused::Fail,
            Some(other) => {
                let text = format!("refused is 'wait', 'fail' or None, not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        config.calls_per_peer = self.calls_per_peer.unwrap_or(config.calls_per_peer);
        config.calls_in_all = self.calls_in_all.unwrap_or(config.calls_in_all);
        config.queue_per_peer = self.queue_per_peer.unwrap_or(config.queue_per_peer);
        config.max_body = self.max_body.unwrap_or(config.max_body);
        Ok(config)
    }
}

impl Engine {
    fn state(&self) -> PyResult<&Rc<State>> {
        Ok(&self.owned.get()?.state)
    }
}

#[pymethods]
impl Engine {
    /// Opens an endpoint. `url` is `None` for that of this rank of the job.
    #[new]
    #[pyo3(signature = (url, secret, secret_file, attended, settings))]
    fn new(
        py: Python<'_>,
        url: Option<String>,
        secret: Option<Vec<u8>>,
        secret_file: Option<PathBuf>,
        attended: bool,
        settings: Settings,
    ) -> PyResult<Engine> {
        fork::watch();
        let config = settings.config()?;
        let mut options = OpenOptions::default();
        options.secret = secret.map(SecretBytes::new);
        options.secret_file = secret_file;
        options.attended = attended.then(AttendedConfig::default);
        let open = || -> Result<_, String> {
            match url {
                Some(url) => petasos::open(&url, &options).map_err(|error| error.to_string()),
                None => {
                    let job = petasos::job().map_err(|error| error.to_string())?;
                    petasos::open_own(job).map_err(|error| error.to_string())
                }
            }
        };
        let endpoint = py.detach(open).map_err(|text| errors::plain("OpenError", &text))?;
        let max_body = config.max_body;
        let engine = petasos::Engine::new(endpoint, config);
        let (address, fd) = (engine.address().as_str().to_owned(), engine.fd());
        let state = State::new(engine, max_body);
        let home = state.home.clone();
        Ok(Engine { owned: Owned::new(&home, Inner { state, fd }), address })
    }

    /// A method of the service at an address, to be called.
    fn calls(
        &self,
        address: &str,
        name: &str,
        signature: u64,
        provider: u16,
        timeout: Option<f64>,
    ) -> PyResult<Calls> {
        let state = self.state()?;
        let target = state.engine()?.lookup(address);
        let target = target.map_err(|error| errors::plain("AddressError", &error.to_string()))?;
        let mut options = CallOptions::default().provider(provider);
        if let Some(timeout) = timeout {
            options = options.timeout(seconds("timeout", timeout)?);
        }
        Ok(Calls::new(state, target, petasos::Method::named(name), signature, options))
    }

    /// Serves a method. A plain handler gets the arguments, of which there are `least` to `most`,
    /// and its value is the result; another one gets the call, and answers it.
    #[expect(clippy::too_many_arguments, reason = "one for each of what it says")]
    fn serve(
        &self,
        name: &str,
        signature: u64,
        provider: u16,
        handler: Py<PyAny>,
        plain: bool,
        least: usize,
        most: usize,
    ) -> PyResult<()> {
        let method = petasos::Method { signature, ..petasos::Method::named(name) };
        let handler = Handler { call: handler, plain, least, most };
        match self.state()?.serve(method, provider, handler)? {
            true => Ok(()),
            false => {
                let text = format!(
                    "{name} is served already under provider {provider}, or another method has its \
                     id"
                );
                Err(PyValueError::new_err(text))
            }
        }
    }

    /// Lends memory to peers, to be read (`"r"`), written (`"w"`) or both (`"rw"`).
    fn lend(&self, memory: &Bound<'_, PyAny>, access: &str) -> PyResult<Bulk> {
        let access = match access {
            "r" => Access::READ,
            "w" => Access::WRITE,
            "rw" => Access::READ.with(Access::WRITE),
            other => {
                let text = format!("access is 'r', 'w' or 'rw', not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        Bulk::lend(self.state()?, memory, access)
    }

    /// An array of zeroes in memory of the transport, which peers read in place.
    fn array(&self, kind: &str, shape: Vec<u64>) -> PyResult<Array> {
        let element = Element::of_name(kind).ok_or_else(|| {
            PyValueError::new_err(format!("no array of {kind}: its numbers do not travel"))
        })?;
        Array::new(self.state()?, element, shape)
    }

    /// Waits for so many seconds: calls are served meanwhile.
    fn sleep(&self, py: Python<'_>, time: f64) -> PyResult<Py<PyAny>> {
        let state = self.state()?;
        let sleep = state.engine()?.sleep(seconds("a sleep", time)?);
        let work = async {
            sleep.await;
            Ok(Done::Nothing)
        };
        operation::conclude(py, state, Box::pin(work))
    }

    /// An event loop drives the engine from now on: `awaitable` makes what it awaits of an
    /// operation.
    fn set_awaitable(&self, awaitable: Py<PyAny>) -> PyResult<()> {
        self.state()?.set_awaitable(awaitable);
        Ok(())
    }

    /// Drives the engine without blocking: returns for how many seconds an event loop may sleep on
    /// the descriptor, or `None` if there is more to do.
    fn pump(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(self.state()?.pump(py)?.map(|longest| longest.as_secs_f64()))
    }

    /// The descriptor to sleep on. It is the engine's.
    fn fileno(&self) -> PyResult<Option<i32>> {
        Ok(self.owned.get()?.fd.as_ref().map(AsRawFd::as_raw_fd))
    }

    /// What is under way, as a dictionary of numbers.
    fn usage(&self) -> PyResult<std::collections::BTreeMap<&'static str, usize>> {
        let state = self.state()?;
        let usage = state.usage()?;
        Ok([
            ("calls", usage.calls),
            ("serving", usage.serving),
            ("operations", usage.operations),
            ("tasks", usage.tasks),
            ("lent", state.lent()),
        ]
        .into())
    }

    /// Ends the engine: what is under way fails. Waits for memory that peers still reach for
    /// `patience` seconds at most; what they reach then is never freed.
    fn close(&self, py: Python<'_>, patience: f64) -> PyResult<()> {
        let patience = seconds("patience", patience)?;
        self.state()?.close(py, patience);
        Ok(())
    }

    /// Whether it is closed.
    fn closed(&self) -> PyResult<bool> {
        Ok(self.state()?.engine().is_err())
    }

    /// Whether this is its thread, in the process that opened it.
    fn is_here(&self) -> bool {
        self.owned.get().is_ok()
    }
}
