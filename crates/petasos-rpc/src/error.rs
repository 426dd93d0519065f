//! How calls and transfers fail.

use petasos_fabric::{Address, ExportError, ImportError, OpError, RegisterError, ResolveError};
use petasos_wire::DecodeError;
use std::time::Duration;

/// A call that failed: with whom, which method, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The time was over. The target was told to stop; it may have done the work, or part of it.
    #[error("{method} at {peer}: not answered within {timeout:?}")]
    Deadline {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// The time it had.
        timeout: Duration,
    },
    /// The peer is gone, or was never reached. One that is gone may have done the work, or part of it.
    #[error("{method} at {peer}: {}", .reason.of_peer())]
    PeerLost {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// Why it is gone.
        reason: petasos_fabric::LostReason,
    },
    /// The address could not be used.
    #[error("{method} at {peer}: {reason}")]
    Unresolved {
        /// Who was to be called.
        peer: Address,
        /// What was to be called.
        method: &'static str,
        /// What is wrong with the address.
        reason: String,
    },
    /// The target, or the queue here, takes no more calls now. Nothing was done.
    #[error("{method} at {peer}: busy, try again after {retry_after:?}")]
    Busy {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// When it may be worth another try.
        retry_after: Duration,
    },
    /// The target knows no such method.
    #[error("{peer} knows no method {method}: is it the right program, in the right version?")]
    NoSuchMethod {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
    },
    /// The target has the method, but not under this provider id.
    #[error("{peer} has no provider {provider} of {method}")]
    NoSuchProvider {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// The provider that was asked for.
        provider: u16,
    },
    /// Caller and target mean different things by this method.
    #[error(
        "{method} at {peer}: its signature there ({theirs:016x}) is not ours ({ours:016x}): \
             the two programs were built from different versions of the interface"
    )]
    SignatureMismatch {
        /// Who was called.
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
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
    },
    /// The handler failed: it gave up, or panicked.
    #[error("{method} at {peer}: the handler failed: {reason}")]
    Failed {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// What it said.
        reason: String,
    },
    /// The target could not decode the arguments.
    #[error("{method} at {peer}: the arguments were not understood: {reason}")]
    BadArguments {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// What is wrong with them.
        reason: String,
    },
    /// The result could not be decoded.
    #[error("{method} at {peer}: the result was not understood: {reason}")]
    BadResult {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// What is wrong with it.
        reason: DecodeError,
    },
    /// Arguments or result are larger than one side allows.
    #[error("{method} at {peer}: too large: {reason}")]
    TooLarge {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// Which limit was exceeded.
        reason: String,
    },
    /// The bulk memory lent to the call, or a result fetched from afar, could not be moved.
    #[error("{method} at {peer}: {reason}")]
    Transfer {
        /// Who was called.
        peer: Address,
        /// What was called.
        method: &'static str,
        /// What went wrong.
        reason: String,
    },
    /// The engine is gone, and with it the call.
    #[error("the engine has ended")]
    EngineGone,
}

/// How a handler says that it could not do it. Application errors are better part of the result's
/// type; this is for what is beyond the interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// It gave up; the text reaches the caller.
    #[error("{0}")]
    Failed(String),
    /// The arguments do not decode.
    #[error("{0}")]
    BadArguments(String),
    /// The target has no room for it now.
    #[error("busy")]
    Busy,
    /// It would exceed a limit.
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

/// How bulk transfers and remote memory fail.
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
    /// More than this side takes into memory.
    #[error("{len} bytes are more than the {limit} that are taken into memory")]
    TooLarge {
        /// How many bytes.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// The data travelled within the descriptor, and can only be read.
    #[error("this bulk memory can only be read")]
    ReadOnly,
    /// The engine is gone.
    #[error("the engine has ended")]
    EngineGone,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{method} is served already under provider {provider}, or another method has its id")]
pub struct ServeError {
    /// The method in the way.
    pub method: &'static str,
    /// The provider.
    pub provider: u16,
}
