//! What failures of calls, bulk data and endpoints mean for the exit code, and what to do.

use super::{Code, Failure};
use petasos::{
    BulkError, CallError, OpenError,
    fabric::{LostReason, OpErrorKind},
};
use std::{fmt, io};

/// A peer that was never there, or is not there any more; `error` says the latter in its own words.
pub fn lost_peer(peer: &str, reason: &LostReason, error: impl fmt::Display) -> Failure {
    let (code, advice) = lost(reason);
    let failure = match reason {
        LostReason::Unreachable(patience, why) => {
            Failure::new(code, format!("cannot reach {peer}: {why} (tried for {patience:?})"))
        }
        _ => Failure::new(code, error),
    };
    failure.advise(advice)
}

/// What a lost peer means for the exit code, and what to do.
fn lost(reason: &LostReason) -> (Code, &'static str) {
    match reason {
        LostReason::Refused(_) => {
            (Code::Refused, "give both sides the same file with --secret, readable by you alone")
        }
        LostReason::Unreachable(..) => (
            Code::Unreachable,
            "see that a server runs at this very URL (`petasos serve` prints it), and that \
             no firewall is between",
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
            CallError::PeerLost { peer, reason, .. } => {
                return lost_peer(peer.as_str(), reason, &error);
            }
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
            BulkError::Transfer(failed) => match &failed.kind {
                OpErrorKind::PeerLost(reason) => {
                    let peer = failed.peer.as_ref().map_or("the peer", |peer| peer.as_str());
                    lost_peer(peer, reason, &error)
                }
                _ => Failure::new(Code::Failed, error),
            },
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
            OpenError::Plugin(_) => Failure::new(Code::Failed, error).advise(SEE_INFO),
            OpenError::NotBuilt { .. } => Failure::new(Code::Unavailable, error)
                .advise("`petasos info` lists the transports that there are"),
            OpenError::Shm(reason) => shm(&reason),
            OpenError::Tcp(reason) => tcp(&reason),
            OpenError::Local(reason) => Failure::new(Code::Usage, reason)
                .advise("write self://NAME; other processes are reached over shm:// or tcp://"),
            OpenError::Ofi(reason) => ofi(reason),
            OpenError::Ucx(reason) => ucx(reason),
            OpenError::Auto(reason) => auto(&reason),
            _ => Failure::new(Code::Failed, error),
        }
    }
}

const SEE_INFO: &str = "`petasos info` says which transports work on this machine, and why not";

/// A network of libfabric: an unknown one is a wrong URL, one that is not here is not available.
fn ofi(error: petasos::ofi::OpenError) -> Failure {
    use petasos::ofi::OpenError::{Common, NotOfi};
    match error {
        Common(reason) => network(reason),
        NotOfi { .. } => Failure::new(Code::Usage, error).advise(SEE_INFO),
        _ => Failure::new(Code::Unavailable, error).advise(SEE_INFO),
    }
}

/// The same of UCX.
fn ucx(error: petasos::ucx::OpenError) -> Failure {
    use petasos::ucx::OpenError::{Common, NotUcx};
    match error {
        Common(reason) => network(reason),
        NotUcx { .. } => Failure::new(Code::Usage, error).advise(SEE_INFO),
        _ => Failure::new(Code::Unavailable, error).advise(SEE_INFO),
    }
}

/// Several transports under one address.
fn auto(error: &petasos::auto::OpenError) -> Failure {
    use petasos::auto::OpenError::{System, TooShort};
    let code = match error {
        System(_) => Code::Failed,
        TooShort { .. } => Code::Unavailable,
        _ => Code::Usage,
    };
    Failure::new(code, error).advise("write auto://HOST:PORT, auto://* or auto://URL,URL")
}

/// Where endpoints over a library's network meet.
fn network(error: petasos::ucx::CommonError) -> Failure {
    use petasos::ucx::CommonError::{Secret, Shm, System, Tcp};
    match error {
        Shm(reason) => shm(&reason),
        Tcp(reason) => tcp(&reason),
        Secret(reason) => tcp(&petasos::tcp::OpenError::Secret(reason)),
        System { .. } => Failure::new(Code::Unavailable, error).advise(SEE_INFO),
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
    use petasos::tcp::OpenError::{NeedsKey, NeedsSecret, NoSuchPlace, Secret, System};
    let (code, advice) = match error {
        NeedsSecret(_) | NeedsKey(_) | Secret(_) => (Code::Refused, MAKE_A_SECRET),
        System { address, error } if error.kind() == io::ErrorKind::PermissionDenied => {
            let port = address.port();
            let text = format!("{address}: this user may not listen at port {port}: {error}");
            return Failure::new(Code::Refused, text).advise(
                "take a port of 1024 or more, or port 0 for a free one; or give the program the \
                 right: setcap cap_net_bind_service=+ep",
            );
        }
        System { error, .. } if error.kind() == io::ErrorKind::AddrNotAvailable => {
            (Code::Unavailable, "take an address of this machine: `petasos info` lists them")
        }
        NoSuchPlace { .. } => {
            (Code::Usage, "name a host, an interface or a subnet of this machine: `petasos info`")
        }
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

/// What makes a secret.
pub const MAKE_A_SECRET: &str = "(umask 077; head -c 32 /dev/urandom | base64 > FILE), the \
                                        same FILE on both sides, and --secret FILE";

#[cfg(test)]
mod tests {
    use super::*;
    use petasos::{auto, ofi, tcp, ucx};
    use std::time::Duration;

    /// What an endpoint may be refused for, and the exit code that the help promises.
    #[test]
    fn refused_endpoints() {
        let system = |kind: io::ErrorKind| {
            let address = "127.0.0.1:80".parse().unwrap();
            OpenError::Tcp(tcp::OpenError::System { address, error: kind.into() })
        };
        let url = |text: &str| text.parse::<petasos::fabric::Address>().unwrap();
        let known = || "tcp".to_owned();
        let text = || "x".to_owned();
        let not_here =
            ofi::OpenError::NoProvider { provider: text(), version: text(), offered: known() };
        let refused = ucx::OpenError::Refused {
            version: text(),
            transports: "rc",
            call: "x",
            reason: text(),
            advice: "",
        };
        let unknown = ofi::OpenError::NotOfi { address: url("ofi+x://h:1"), known: known() };
        let strange = ucx::OpenError::NotUcx { address: url("ucx+x://h:1"), known: known() };
        for (error, code, hint) in [
            (system(io::ErrorKind::PermissionDenied), Code::Refused, "1024"),
            (system(io::ErrorKind::AddrInUse), Code::Failed, "another port"),
            (system(io::ErrorKind::AddrNotAvailable), Code::Unavailable, "address of this machine"),
            (OpenError::Ofi(not_here), Code::Unavailable, "info"),
            (OpenError::Ofi(unknown), Code::Usage, "info"),
            (OpenError::Ucx(strange), Code::Usage, "info"),
            (OpenError::Ucx(refused), Code::Unavailable, "info"),
            (OpenError::Auto(auto::OpenError::Members { count: 0 }), Code::Usage, "auto://"),
            (OpenError::NotBuilt { scheme: "ucx", reason: "x" }, Code::Unavailable, "info"),
        ] {
            let failure = Failure::from(error);
            assert_eq!(failure.code, code, "{failure}");
            assert!(failure.advice.as_ref().unwrap().contains(hint), "{failure}");
        }
        let port = Failure::from(system(io::ErrorKind::PermissionDenied)).to_string();
        assert!(port.contains("port 80") && !port.contains("secret"), "{port}");
    }

    #[test]
    fn a_peer_that_never_was_there_is_not_lost() {
        let why = LostReason::Unreachable(Duration::from_secs(3), "Connection refused".to_owned());
        let peer = "shm://x".parse().unwrap();
        let error = CallError::PeerLost { peer, method: "a::b", reason: why.clone() };
        let said = Failure::from(error).to_string();
        assert!(said.starts_with("cannot reach shm://x: Connection refused"), "{said}");
        let bulk = petasos::fabric::OpError::local(OpErrorKind::PeerLost(why));
        let said = [bulk.to_string(), Failure::from(BulkError::Transfer(bulk)).to_string()];
        assert!(said.iter().all(|said| !said.contains("lost")), "{said:?}");
        let peer = "shm://x".parse().unwrap();
        let ended = CallError::PeerLost { peer, method: "a::b", reason: LostReason::Closed };
        assert!(Failure::from(ended).to_string().contains("the peer is lost"));
    }
}
