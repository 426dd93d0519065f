//! The programs that may take part, and how each is started.

use super::{
    contender::{Contender, Site},
    local::Local,
    petasos::Petasos,
    rclone::Rclone,
    rsync::Rsync,
    ssh::Ssh,
};
use crate::exit::Outcome;
use petasos::Transport;

/// Starts one.
type Start = Box<dyn Fn(Site<'_>) -> Outcome<Box<dyn Contender>>>;

/// A program that may take part, if it can be started.
pub(super) struct Candidate {
    /// The name of its directories.
    pub(super) key: String,
    pub(super) start: Start,
    pub(super) ours: bool,
}

/// All candidates, the limit first; Petasos once for each of these transports.
pub(super) fn all(transports: &[&'static Transport]) -> Vec<Candidate> {
    fn boxed<C: Contender + 'static>(
        key: &str,
        start: impl Fn(Site<'_>) -> Outcome<C> + 'static,
    ) -> Candidate {
        let start: Start = Box::new(move |site| Ok(Box::new(start(site)?)));
        Candidate { key: key.to_owned(), start, ours: false }
    }
    let ours = transports.iter().copied().map(|transport| Candidate {
        ours: true,
        ..boxed(&format!("petasos-{}", transport.scheme), |site| Petasos::start(&site, transport))
    });
    let local = boxed("local", |_| Local::new());
    let peers = [
        boxed("ssh", |site| Ssh::start(&site)),
        boxed("rclone", |site| Rclone::start(&site)),
        boxed("rsync", |site| Rsync::start(&site)),
    ];
    std::iter::once(local).chain(ours).chain(peers).collect()
}
