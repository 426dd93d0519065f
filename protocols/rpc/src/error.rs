//! The errors of calls and transfers.

use petasos_fabric::{Address, ExportError, ImportError, OpError, RegisterError, ResolveError};
use petasos_wire::DecodeError;
use std::time::Duration;

/// Why a call failed. Each variant but the last names the peer and the method.
///
/// ```
/// use petasos_rpc::{CallError, Engine, EngineConfig, service};
///
/// #[service]
/// trait Ping {
///     async fn ping(&self);
/// }
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// let ping = PingClient::new(&engine, engine.address());
/// match engine.block_on(ping.ping()) {
///     Ok(()) => {}
///     // Nothing was done: it may be called again.
///     Err(CallError::Busy { retry_after, .. }) => println!("again in {retry_after:?}"),
///     // It may have been done.
///     Err(CallError::Deadline { .. } | CallError::PeerLost { .. }) => println!("unknown"),
///     // Here no service is registered.
///     Err(error) => assert!(matches!(error, CallError::NoSuchMethod { .. })),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The time limit has passed. The target was told to stop; it may have done the work, or part
    /// of it.
    #[error("{method} at {peer}: not answered within {timeout:?}")]
    Deadline {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// The time it had.
        timeout: Duration,
    },
    /// The peer is lost, or was never reached. A peer that was lost may have done the work, or part
    /// of it.
    #[error("{method} at {peer}: {}", .reason.of_peer())]
    PeerLost {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// Why it is lost.
        reason: petasos_fabric::LostReason,
    },
    /// The address could not be used.
    #[error("{method} at {peer}: {reason}")]
    Unresolved {
        /// The address that was to be called.
        peer: Address,
        /// What was to be called.
        method: &'static str,
        /// What is wrong with the address.
        reason: String,
    },
    /// The target, or the queue here, takes no more calls now. Nothing was done.
    #[error("{method} at {peer}: busy, try again after {retry_after:?}")]
    Busy {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// When to try again.
        retry_after: Duration,
    },
    /// The target does not serve this method.
    #[error("{peer} knows no method {method}: is it the right program, in the right version?")]
    NoSuchMethod {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
    },
    /// The target has the method, but not under this provider id.
    #[error("{peer} has no provider {provider} of {method}")]
    NoSuchProvider {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// The provider that was asked for.
        provider: u16,
    },
    /// Caller and target were built with different signatures of this method.
    #[error(
        "{method} at {peer}: its signature there ({theirs:016x}) is not ours ({ours:016x}): \
             the two programs were built from different versions of the interface"
    )]
    SignatureMismatch {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// Hash of the signature here.
        ours: u64,
        /// Hash of the signature there.
        theirs: u64,
    },
    /// The target cancelled the call.
    #[error("{method} at {peer}: cancelled")]
    Cancelled {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
    },
    /// The handler failed: it gave up, or panicked.
    #[error("{method} at {peer}: the handler failed: {reason}")]
    Failed {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// Its message.
        reason: String,
    },
    /// The target could not decode the arguments.
    #[error("{method} at {peer}: the arguments were not understood: {reason}")]
    BadArguments {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// What is wrong with them.
        reason: String,
    },
    /// The result could not be decoded.
    #[error("{method} at {peer}: the result was not understood: {reason}")]
    BadResult {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// What is wrong with it.
        reason: DecodeError,
    },
    /// Arguments or result are larger than one side allows.
    #[error("{method} at {peer}: too large: {reason}")]
    TooLarge {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// Which limit was exceeded.
        reason: String,
    },
    /// The bulk memory of the call could not be lent, or arguments or result could not be moved.
    #[error("{method} at {peer}: {reason}")]
    Transfer {
        /// The peer that was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// What went wrong.
        reason: String,
    },
    /// The engine has ended, and with it the call.
    #[error("the engine has ended")]
    EngineEnded,
}

/// How a handler fails. Put errors of the application into the type of the result; this is for what
/// the interface does not describe.
///
/// ```
/// use petasos_rpc::{CallError, CallOptions, Engine, EngineConfig, Failure, Method, bytes};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// let never = Method::named("Never::works");
/// engine.register(never, 0, bytes(|_| async { Err(Failure::Failed("no disk".to_owned())) }));
/// let target = engine.target(engine.address());
/// let error = engine.block_on(target.call_bytes(never, &CallOptions::default(), &[]));
/// assert!(matches!(error, Err(CallError::Failed { reason, .. }) if reason == "no disk"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// It failed; the caller gets the text ([`CallError::Failed`]).
    #[error("{0}")]
    Failed(String),
    /// The arguments cannot be decoded ([`CallError::BadArguments`]).
    #[error("{0}")]
    BadArguments(String),
    /// The target has no room for the call now ([`CallError::Busy`]).
    #[error("busy")]
    Busy,
    /// The call would exceed a limit ([`CallError::TooLarge`]).
    #[error("{0}")]
    TooLarge(String),
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Failure {
        Failure::BadArguments(error.to_string())
    }
}

impl From<BulkError> for Failure {
    fn from(error: BulkError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

/// Why a bulk transfer, or an operation on remote memory, failed.
///
/// ```
/// use petasos_rpc::{Access, BulkError, Engine, EngineConfig, Region};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// let bulk = engine.bulk(Region::zeroed(1000), Access::READ)?;
/// let remote = engine.open(&bulk.handle())?;
/// let error = engine.block_on(remote.pull(900, 200)).unwrap_err();
/// assert!(matches!(error, BulkError::OutOfBounds { bound: 1000, .. }), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The memory could not be registered.
    #[error("the memory was not registered: {0}")]
    Register(String),
    /// The key could not be used.
    #[error("the key cannot be used: {0}")]
    Import(String),
    /// The transfer failed.
    #[error(transparent)]
    Transfer(#[from] OpError),
    /// Beyond the end of the bulk memory.
    #[error("{offset}+{len} is beyond the {bound} bytes of the bulk memory")]
    OutOfBounds {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// The length of the bulk memory.
        bound: u64,
    },
    /// More than [`EngineConfig::max_body`](crate::EngineConfig::max_body).
    #[error("{len} bytes are more than the {limit} that are taken into memory")]
    TooLarge {
        /// How many bytes.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// More pieces than [`EngineConfig::bulk_pieces`](crate::EngineConfig::bulk_pieces).
    #[error("{pieces} pieces of memory are more than the {limit} that are lent at a time")]
    TooManyPieces {
        /// How many pieces.
        pieces: usize,
        /// The limit.
        limit: usize,
    },
    /// The data travelled within the descriptor, and can only be read.
    #[error("this bulk memory can only be read")]
    ReadOnly,
    /// This side has given the memory back.
    #[error("this bulk memory was given back to its owner")]
    Released,
    /// The engine has ended.
    #[error("the engine has ended")]
    EngineEnded,
}

impl From<RegisterError> for BulkError {
    fn from(error: RegisterError) -> BulkError {
        BulkError::Register(error.to_string())
    }
}

impl From<ExportError> for BulkError {
    fn from(error: ExportError) -> BulkError {
        BulkError::Register(error.to_string())
    }
}

impl From<ImportError> for BulkError {
    fn from(error: ImportError) -> BulkError {
        BulkError::Import(error.to_string())
    }
}

impl From<ResolveError> for BulkError {
    fn from(error: ResolveError) -> BulkError {
        BulkError::Import(error.to_string())
    }
}

/// So that `?` works in a handler whose errors are texts.
impl From<BulkError> for String {
    fn from(error: BulkError) -> String {
        error.to_string()
    }
}

/// So that `?` works in a handler that calls others, and whose errors are texts.
impl From<CallError> for String {
    fn from(error: CallError) -> String {
        error.to_string()
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

/// Why a service was not registered.
///
/// ```
/// use petasos_rpc::{Engine, EngineConfig, service};
///
/// #[service]
/// trait Ping {
///     async fn ping(&self);
/// }
///
/// struct Pong;
///
/// impl Ping for Pong {
///     async fn ping(&self) {}
/// }
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// Pong.serve(&engine, 0)?;
/// // Another provider of the same interface has another number.
/// assert!(Pong.serve(&engine, 0).is_err() && Pong.serve(&engine, 1).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{method} is served already under provider {provider}, or another method has its id")]
pub struct ServeError {
    /// The method that is served already.
    pub method: &'static str,
    /// The provider.
    pub provider: u16,
}
