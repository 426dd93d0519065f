//! The status of a response: how the target says that an operation went.

use crate::Failure;

/// The status of a response that ends an operation without an event.
pub(crate) const SILENT: u8 = 255;

/// The status of a response that tells of a success in the overflow list.
pub(crate) const OVERFLOW: u8 = 6;

/// The number of a result in a response.
pub(crate) fn status(result: Result<(), Failure>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(Failure::Dropped) => 1,
        Err(Failure::PortalDisabled) => 2,
        Err(Failure::Permission) => 3,
        Err(Failure::Operation) => 4,
        Err(Failure::Fault) => 7,
        Err(_) => 5,
    }
}

/// The result with this number; `None` for [`SILENT`], and for numbers without a meaning.
pub(crate) fn status_result(status: u8) -> Option<Result<(), Failure>> {
    Some(match status {
        0 => Ok(()),
        1 => Err(Failure::Dropped),
        2 => Err(Failure::PortalDisabled),
        3 => Err(Failure::Permission),
        4 => Err(Failure::Operation),
        5 => Err(Failure::Undelivered),
        7 => Err(Failure::Fault),
        _ => return None,
    })
}
