//! Options of a call.

use petasos_wire::{Encoding, rpc::Trace};
use std::time::Duration;

/// Options of a call; the defaults suit most.
///
/// The time limit travels with the call: when it has passed, the caller gets
/// [`CallError::Deadline`](crate::CallError::Deadline), and the target drops the handler's future.
///
/// ```
/// use petasos_rpc::{CallError, CallOptions, Context, Engine, EngineConfig, service};
/// use std::time::Duration;
///
/// #[service]
/// trait Search {
///     async fn find(&self, context: Context, what: String) -> Option<u64>;
/// }
///
/// struct Slow;
///
/// impl Search for Slow {
///     async fn find(&self, context: Context, _: String) -> Option<u64> {
///         // A handler sees how much time the caller gave it.
///         assert_eq!(context.time_limit(), Some(Duration::from_millis(20)));
///         context.engine().sleep(Duration::from_secs(60)).await;
///         None
///     }
/// }
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let engine = Engine::new(endpoint, EngineConfig::default());
/// Slow.serve(&engine, 0)?;
/// let search = SearchClient::new(&engine, engine.address());
///
/// // The same client, whose calls have 20 ms each.
/// let quick = search.with(CallOptions::default().timeout(Duration::from_millis(20)));
/// let error = engine.block_on(quick.find("it".into())).unwrap_err();
/// assert!(matches!(error, CallError::Deadline { .. }), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallOptions {
    /// The time limit. `None`: that of [`EngineConfig::timeout`](crate::EngineConfig::timeout).
    /// `Duration::MAX`, and all above an hour and eleven minutes, is no limit at the target.
    pub timeout: Option<Duration>,
    /// Which provider of the interface; 0 by default.
    pub provider: u16,
    /// How arguments and result are encoded.
    pub encoding: Encoding,
    /// Whether checksums guard request and response.
    pub checked: bool,
    /// The trace that the call belongs to. `None`: it begins one, if there is a subscriber for
    /// traces.
    pub trace: Option<Trace>,
}

impl CallOptions {
    /// Whether the request is plain: see [`petasos_wire::rpc::plain_request`].
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.encoding == Encoding::Native && !self.checked && self.trace.is_none()
    }

    /// Sets the time limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> CallOptions {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the provider.
    #[must_use]
    pub fn provider(mut self, provider: u16) -> CallOptions {
        self.provider = provider;
        self
    }

    /// Sets the encoding.
    #[must_use]
    pub fn encoding(mut self, encoding: Encoding) -> CallOptions {
        self.encoding = encoding;
        self
    }

    /// Asks for checksums.
    #[must_use]
    pub fn checked(mut self) -> CallOptions {
        self.checked = true;
        self
    }

    /// Makes it part of a trace.
    #[must_use]
    pub fn trace(mut self, trace: Option<Trace>) -> CallOptions {
        self.trace = trace;
        self
    }
}
