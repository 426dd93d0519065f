//! Where servers of the command line listen, and which processes reach them there.
//!
//! Over shared memory the kernel says whose process a peer is, and only processes of the server's
//! own user are let in. Over a network on the loopback interface, without a secret, the peer may be
//! any user of the machine: the user that exports something must want that.

use crate::exit::{Code, Failure, Outcome};
use petasos::fabric::Address;
use std::{fmt::Write, path::Path};

/// What a command line says of where to listen.
pub(crate) struct Listening<'a> {
    /// The URLs; none for the default ones.
    pub(crate) urls: &'a [Address],
    pub(crate) secret: Option<&'a Path>,
    /// Whether other users of the machine may come without a secret.
    pub(crate) open: bool,
}

impl Listening<'_> {
    /// Where to listen, for a server that exports something: by default over shared memory, and
    /// over TCP where that asks for a secret or is to be open.
    pub(crate) fn urls(&self) -> Outcome<Vec<String>> {
        let guarded = |scheme: &str| self.secret.is_some() || self.open || !is_network(scheme);
        if self.urls.is_empty() {
            let between = petasos::transports().iter().filter(|t| t.by_default);
            let safe = between.filter(|t| t.scheme != "self" && guarded(t.scheme));
            return Ok(safe.map(|transport| transport.any.to_owned()).collect());
        }
        for url in self.urls {
            if let Some(network) = schemes(url).find(|scheme| !guarded(scheme)) {
                let text = format!(
                    "{url}: over {network}, without a secret, every user of this machine could \
                     do what this server can"
                );
                return Err(Failure::new(Code::Refused, text).advise(
                    "--secret FILE, the same FILE on both sides; or --listen shm://NAME for your \
                     own processes alone; or --open, if all users of this machine are meant",
                ));
            }
        }
        self.between_processes()
    }

    /// The URLs as they were given, none of which is within this process alone.
    fn between_processes(&self) -> Outcome<Vec<String>> {
        if let Some(url) = self.urls.iter().find(|url| url.scheme() == "self") {
            let text = format!("{url}: no other process could connect to it");
            return Err(Failure::new(Code::Usage, text).advise("--listen shm://NAME"));
        }
        Ok(self.urls.iter().map(ToString::to_string).collect())
    }

    /// Which clients can connect to a server at these addresses, in one line: `may` says what they
    /// can do there.
    pub(crate) fn clients(&self, addresses: &[Address], may: &str) -> String {
        let user = user();
        let network = addresses.iter().flat_map(schemes).any(|scheme| is_network(&scheme));
        let mut line = String::new();
        match (self.secret, network) {
            (None, true) => {
                let _ = write!(line, "every user of this machine can {may}, without a secret");
            }
            (Some(secret), true) => {
                let _ = write!(line, "clients with the secret in {} can {may}", secret.display());
                if addresses.iter().flat_map(schemes).any(|scheme| !is_network(&scheme)) {
                    let _ = write!(line, "; so can processes of {user} on this machine");
                }
            }
            (_, false) => {
                let tenants = addresses.iter().filter(|url| url.scheme() == "tenant").count();
                if tenants < addresses.len() {
                    let _ = write!(line, "processes of {user} on this machine can {may}");
                }
                if tenants > 0 {
                    let also = if line.is_empty() { "" } else { "; so can " };
                    let _ = write!(line, "{also}containers that the broker's rules allow");
                    if also.is_empty() {
                        let _ = write!(line, " can {may}");
                    }
                }
            }
        }
        line
    }
}

/// Whose rights this process has, in words.
pub(crate) fn user() -> String {
    match rustix::process::geteuid().as_raw() {
        0 => "root".to_owned(),
        uid => format!("user {uid}"),
    }
}

/// The schemes by which an endpoint at this address is reached: several where it is `auto://`.
fn schemes(url: &Address) -> impl Iterator<Item = String> {
    let mut found = vec![url.scheme().to_owned()];
    if url.scheme() == "auto" {
        let inner = url.rest().split([',', '/']).filter_map(|part| part.strip_suffix(':'));
        found = inner.map(str::to_owned).collect();
        if found.is_empty() {
            // `auto://HOST:PORT` and `auto://*` listen over TCP, too.
            found = ["shm", "tcp"].map(str::to_owned).into();
        }
    }
    found.into_iter()
}

/// Whether it is reached through sockets that tell nothing of the peer's user.
fn is_network(scheme: &str) -> bool {
    !petasos::stays_on_node(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(urls: &[&str], secret: bool, open: bool) -> Outcome<Vec<String>> {
        let urls: Vec<Address> = urls.iter().map(|url| url.parse().unwrap()).collect();
        let secret = secret.then_some(Path::new("FILE"));
        Listening { urls: &urls, secret, open }.urls()
    }

    #[test]
    fn no_other_user_by_default() {
        assert_eq!(urls(&[], false, false).unwrap(), ["shm://*"]);
        assert_eq!(urls(&[], true, false).unwrap(), ["shm://*", "tcp://127.0.0.1:0"]);
        assert_eq!(urls(&[], false, true).unwrap(), ["shm://*", "tcp://127.0.0.1:0"]);
    }

    #[test]
    fn networks_want_a_secret_or_a_word() {
        for url in [
            "tcp://127.0.0.1:0",
            "tcp://*",
            "auto://*",
            "auto://127.0.0.1:4040",
            "auto://0123456789abcdef/shm://x,tcp://127.0.0.1:4040",
            "auto://tcp://*",
            "ofi+tcp://127.0.0.1:0",
            "ucx+tcp://127.0.0.1:0",
        ] {
            let refused = urls(&["shm://x", url], false, false).unwrap_err();
            assert_eq!(refused.code, Code::Refused, "{url}");
            assert!(refused.to_string().contains("--open"), "{refused}");
            assert_eq!(urls(&[url], true, false).unwrap(), [url]);
            assert_eq!(urls(&[url], false, true).unwrap(), [url]);
        }
        for url in ["shm://x", "shm:///run/x", "auto://shm://x", "ofi+shm://x"] {
            assert_eq!(urls(&[url], false, false).unwrap(), [url]);
        }
        assert_eq!(urls(&["self://x"], false, false).unwrap_err().code, Code::Usage);
    }

    #[test]
    fn who_that_is() {
        let clients = |urls: &[&str], secret: Option<&str>| {
            let at: Vec<Address> = urls.iter().map(|url| url.parse().unwrap()).collect();
            let listening = Listening { urls: &at, secret: secret.map(Path::new), open: false };
            listening.clients(&at, "call it")
        };
        let (shm, tcp) = ("shm://x", "tcp://127.0.0.1:1");
        assert!(clients(&[shm], None).starts_with("processes of "), "{}", clients(&[shm], None));
        assert!(clients(&[shm, tcp], None).starts_with("every user of this machine can call it"));
        assert!(
            clients(&["auto://0123456789abcdef/shm://x,tcp://127.0.0.1:4040"], None)
                .starts_with("every user of this machine")
        );
        let with = clients(&[shm, tcp], Some("FILE"));
        let tenant = clients(&["tenant://files@alice"], None);
        assert!(tenant.starts_with("containers that the broker's rules allow can"), "{tenant}");
        assert!(
            with.starts_with("clients with the secret in FILE") && with.contains("so can"),
            "{with}"
        );
    }
}
