//! The fabric's errors as libfabric's numbers.

use petasos_fabric::{LostReason, OpErrorKind, ResolveError};
use petasos_ofi_sys::FI_ETRUNC;

/// A number of libfabric's errors: positive, as errno.
pub(crate) type Errno = i32;

pub(crate) fn of_operation(kind: &OpErrorKind) -> Errno {
    match kind {
        OpErrorKind::PeerLost(reason) => of_loss(reason),
        OpErrorKind::Cancelled | OpErrorKind::Withdrawn => libc::ECANCELED,
        OpErrorKind::UnknownPeer => libc::ECONNRESET,
        OpErrorKind::UnknownRegion | OpErrorKind::StaleKey => libc::EKEYREJECTED,
        OpErrorKind::Denied { .. } => libc::EACCES,
        OpErrorKind::OutOfBounds { .. } => libc::EFAULT,
        OpErrorKind::Truncated { .. } => FI_ETRUNC,
        OpErrorKind::Misaligned { .. } | OpErrorKind::LengthMismatch { .. } => libc::EINVAL,
        OpErrorKind::TooLarge { .. } => libc::EMSGSIZE,
        OpErrorKind::Unsupported(_) => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}

pub(crate) fn of_loss(reason: &LostReason) -> Errno {
    match reason {
        LostReason::Silent(_) => libc::ETIMEDOUT,
        LostReason::Unreachable(..) => libc::EHOSTUNREACH,
        LostReason::Refused(_) => libc::EACCES,
        LostReason::Protocol(_) => libc::EPROTO,
        _ => libc::ECONNRESET,
    }
}

pub(crate) fn of_resolving(error: &ResolveError) -> Errno {
    match error {
        ResolveError::TooManyPeers { .. } => libc::EMFILE,
        _ => libc::EINVAL,
    }
}
