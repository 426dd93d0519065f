//! How the command ends: codes that scripts can tell apart, and errors that say what to do.

use petasos::{
    BulkError, CallError, OpenError,
    fabric::{LostReason, OpError, OpErrorKind},
};
use std::{fmt, io, path::Path, process::ExitCode};

/// The table of exit codes, for `--help`.
pub(crate) const CODES: &str = "\
Exit codes:
    0  all went well
    1  the work failed: a file, the system, the other side's handler
    2  the command line was not understood, or asks for what cannot be
    3  the peer could not be reached, or was lost on the way
    4  the data that came back is not the data that was sent
    5  refused: credentials, file modes
    6  not available here: a transport that is not built in or that this machine does not allow
  130  interrupted";

/// Kinds of failure, each with its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The work failed.
    Failed = 1,
    /// Wrong use.
    Usage = 2,
    /// The peer is not there, or not any more.
    Unreachable = 3,
    /// Wrong bytes.
    Mismatch = 4,
    /// Credentials.
    Refused = 5,
    /// Not on this machine.
    Unavailable = 6,
    /// A signal.
    Interrupted = 130,
}

/// A failed command: what happened, and what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    message: String,
    advice: Option<String>,
}

/// What commands give.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, message: impl fmt::Display) -> Failure {
        Failure { code, message: message.to_string(), advice: None }
    }

    /// What to do about it.
    pub(crate) fn advise(mut self, advice: impl fmt::Display) -> Failure {
        self.advice.get_or_insert_with(|| advice.to_string());
        self
    }

    /// Says in which part of the work it happened.
    pub(crate) fn within(mut self, part: impl fmt::Display) -> Failure {
        self.message = format!("{part}: {}", self.message);
        self
    }

    /// A file could not be used.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Failure {
        let failure = Failure::new(Code::Failed, format!("{doing} {}: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::StorageFull => failure.advise(
                "free some space, or set TMPDIR to a directory on another file system, \
                 or take a smaller --size",
            ),
            _ => failure,
        }
    }

    /// For `map_err`: the system refused what is named by `doing`.
    pub(crate) fn system<E: fmt::Display>(doing: &'static str) -> impl FnOnce(E) -> Failure {
        move |error| Failure::new(Code::Failed, format!("{doing}: {error}"))
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(advice) = &self.advice {
            write!(f, "\n  try: {advice}")?;
        }
        Ok(())
    }
}

/// What a lost peer means for the exit code, and what to do.
pub(crate) fn lost(reason: &LostReason) -> (Code, &'static str) {
    match reason {
        LostReason::Refused(_) => {
            (Code::Refused, "give both sides the same file with --secret, readable by you alone")
        }
        LostReason::Unreachable(..) => (
            Code::Unreachable,
            "see that a server runs at this very URL (`petasos serve` prints it), and that \
             nothing between blocks the way",
        ),
        LostReason::Protocol(_) => {
            (Code::Failed, "see that the same version of petasos runs on both sides")
        }
        _ => (Code::Unreachable, "see why the other side ended, start it again, and repeat"),
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        let (code, advice) = match &error {
            CallError::PeerLost { reason, .. } => lost(reason),
            CallError::Deadline { .. } => {
                (Code::Unreachable, "see that a server runs there and is not stuck")
            }
            CallError::Unresolved { .. } => {
                (Code::Usage, "write the URL as `petasos serve` prints it")
            }
            CallError::NoSuchMethod { .. } | CallError::SignatureMismatch { .. } => (
                Code::Failed,
                "ping and bench need `petasos serve`, of the same version, on the other side",
            ),
            _ => return Failure::new(Code::Failed, error),
        };
        Failure::new(code, error).advise(advice)
    }
}

impl From<BulkError> for Failure {
    fn from(error: BulkError) -> Failure {
        match &error {
            BulkError::Transfer(OpError { kind: OpErrorKind::PeerLost(reason), .. }) => {
                let (code, advice) = lost(reason);
                Failure::new(code, error).advise(advice)
            }
            _ => Failure::new(Code::Failed, error),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        match error {
            OpenError::Address(_) | OpenError::UnknownScheme { .. } => {
                Failure::new(Code::Usage, error)
                    .advise("write a URL, such as shm://NAME or tcp://127.0.0.1:4040")
            }
            OpenError::NotBuilt { .. } => Failure::new(Code::Unavailable, error)
                .advise("`petasos info` lists the transports that there are"),
            OpenError::Shm(reason) => shm(&reason),
            OpenError::Tcp(reason) => tcp(&reason),
            OpenError::Ofi(petasos::ofi::OpenError::Load(_))
            | OpenError::Ucx(
                petasos::ucx::OpenError::Load(_) | petasos::ucx::OpenError::Loopback { .. },
            ) => Failure::new(Code::Unavailable, error).advise(SEE_INFO),
            OpenError::Ofi(petasos::ofi::OpenError::Common(reason))
            | OpenError::Ucx(petasos::ucx::OpenError::Common(reason)) => network(reason),
            _ => Failure::new(Code::Failed, error),
        }
    }
}

const SEE_INFO: &str = "`petasos info` says which transports work on this machine, and why not";

/// Where endpoints over a library's network meet.
fn network(error: petasos::ucx::CommonError) -> Failure {
    use petasos::ucx::CommonError::{Secret, Shm, Tcp};
    match error {
        Shm(reason) => shm(&reason),
        Tcp(reason) => tcp(&reason),
        Secret(reason) => tcp(&petasos::tcp::OpenError::Secret(reason)),
        _ => Failure::new(Code::Failed, error),
    }
}

fn shm(error: &petasos::shm::OpenError) -> Failure {
    use petasos::shm::OpenError::{NotYours, System, Taken};
    let (code, advice) = match error {
        Taken(_) => (Code::Failed, "take another name, or shm://* for any"),
        NotYours { .. } => (Code::Refused, "take a name of your own: shm://NAME"),
        System { .. } => (Code::Unavailable, SEE_INFO),
        _ => (Code::Usage, "write shm://NAME, shm:///PATH or shm://*"),
    };
    Failure::new(code, error).advise(advice)
}

fn tcp(error: &petasos::tcp::OpenError) -> Failure {
    use petasos::tcp::OpenError::{NeedsSecret, Secret, System};
    let (code, advice) = match error {
        NeedsSecret(_) | Secret(_) => (
            Code::Refused,
            "(umask 077; head -c 32 /dev/urandom | base64 > FILE), the same FILE on both sides, \
             and --secret FILE",
        ),
        System { error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
            (Code::Failed, "take another port, or port 0 for a free one")
        }
        System { .. } => (Code::Unavailable, SEE_INFO),
        _ => (
            Code::Usage,
            "write tcp://HOST:PORT, port 0 for a free one; `petasos info` lists hosts",
        ),
    };
    Failure::new(code, error).advise(advice)
}

impl From<crate::limits::LimitError> for Failure {
    fn from(error: crate::limits::LimitError) -> Failure {
        Failure::new(Code::Failed, format!("measuring the machine's limit: {error}"))
    }
}
