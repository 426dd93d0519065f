//! What failed operations on forwarded files mean for the exit code, and what to do.

use super::{Code, Failure};
use petasos::CallError;
use petasos_forward::{client::RemoteError, server::StartError};
use rustix::io::Errno;

const SERVER: &str = "see that `petasos forward serve` runs there, of the same version";

impl From<RemoteError> for Failure {
    fn from(error: RemoteError) -> Failure {
        let errno = error.errno();
        match error {
            RemoteError::Call(CallError::NoSuchMethod { .. })
            | RemoteError::Call(CallError::SignatureMismatch { .. }) => {
                Failure::new(Code::Failed, error).advise(SERVER)
            }
            RemoteError::Call(error) => error.into(),
            RemoteError::Bulk(error) => error.into(),
            RemoteError::Ended { .. } => Failure::new(Code::Unreachable, error)
                .advise("see why the server ended, start it again, and repeat"),
            _ => {
                let failure = Failure::new(code(errno), error);
                match advice(errno) {
                    Some(advice) => failure.advise(advice),
                    None => failure,
                }
            }
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        match error {
            StartError::Open { url, reason } => Failure::from(reason).within(url),
            error => Failure::new(Code::Failed, error),
        }
    }
}

/// The exit code of an operation that was refused like this.
pub fn code(errno: Errno) -> Code {
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Code::Refused,
        Errno::PROTO | Errno::PROTONOSUPPORT => Code::Failed,
        _ => Code::Failed,
    }
}

/// What to do about it.
pub fn advice(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::ACCESS | Errno::PERM => {
            "the server works with the rights of the user who runs it: see what those are"
        }
        Errno::ROFS => "the export is read-only: serve it without --read-only",
        Errno::NOSPC | Errno::DQUOT => "free some space there",
        Errno::MFILE | Errno::NFILE => "fewer at a time: --parallel 8",
        _ => return None,
    })
}
