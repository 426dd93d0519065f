//! Which of UCX's transports an address means.

use crate::{OpenError, sys::library::library};
use petasos_datagram::{Config, Meeting, frame::MAX_PROTOCOL};
use petasos_fabric::Address;

/// A kind of address, and what it means to UCX.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Kind {
    /// The scheme of its addresses.
    pub scheme: &'static str,
    /// UCX's transports (`UCX_TLS`).
    pub transports: &'static str,
    /// How its endpoints find each other.
    pub meeting: Meeting,
    /// What it runs on.
    pub title: &'static str,
    /// How remote memory is reached.
    pub(crate) reach: Reach,
}

/// How remote memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The owner serves puts and gets.
    Owner,
    /// The library does, between processes of one user.
    Library,
    /// A NIC does, or the library for it.
    Nic,
}

/// How long an element of the library's queue in shared memory is, in bytes. Of its own 128 there
/// are 92 for a packet, and what is longer lies elsewhere, at 90 ns more for a call with 64 bytes
/// of arguments, which is 120.
const ELEMENT: &str = "256";

const fn node(
    scheme: &'static str,
    transports: &'static str,
    title: &'static str,
    reach: Reach,
) -> Kind {
    Kind { scheme, transports, meeting: Meeting::Shm, title, reach }
}

const fn network(
    scheme: &'static str,
    transports: &'static str,
    title: &'static str,
    reach: Reach,
) -> Kind {
    Kind { scheme, transports, meeting: Meeting::Tcp, title, reach }
}

/// All kinds; `ucx://` means the first of the networks that is available.
const KINDS: [Kind; 8] = [
    network("ucx+ib", "ib", "InfiniBand and RoCE, by whatever of them suits", Reach::Nic),
    network("ucx+rc", "rc", "InfiniBand and RoCE, reliable connections", Reach::Nic),
    network("ucx+dc", "dc", "InfiniBand and RoCE, dynamic connections", Reach::Nic),
    network("ucx+ud", "ud", "InfiniBand and RoCE, datagrams", Reach::Owner),
    network("ucx+tcp", "tcp", "TCP sockets", Reach::Owner),
    node("ucx+posix", "posix", "shared memory of this node", Reach::Owner),
    node("ucx+sysv", "sysv", "shared memory of this node, System V", Reach::Owner),
    node("ucx+cma", "posix,cma", "shared memory of this node, put and get by UCX", Reach::Library),
];

/// The scheme that means the best network.
pub(crate) const BEST: &str = "ucx";

/// All kinds of addresses of this transport.
#[must_use]
pub fn kinds() -> &'static [Kind] {
    &KINDS
}

impl Kind {
    /// The kind that an address means; for `ucx://` the best network that is available.
    pub(crate) fn of(address: &Address) -> Result<&'static Kind, OpenError> {
        let scheme = address.scheme();
        if scheme == BEST {
            library()?;
            let network = |kind: &&Kind| kind.meeting == Meeting::Tcp;
            let best = KINDS.iter().filter(network).find(|kind| kind.is_here().is_ok());
            // If there is none, the error of TCP is reported.
            return Ok(best.unwrap_or(&KINDS[4]));
        }
        KINDS.iter().find(|kind| kind.scheme == scheme).ok_or_else(|| {
            let known: Vec<&str> = KINDS
                .iter()
                .filter_map(|kind| kind.scheme.split_once('+'))
                .map(|(_, tls)| tls)
                .collect();
            OpenError::NotUcx { address: address.clone(), known: known.join(", ") }
        })
    }

    /// Whether the library accesses remote memory. Otherwise its part for that must not be loaded:
    /// it writes wherever a packet says, without asking for a key.
    pub(crate) fn accesses(&self, config: &Config) -> bool {
        config.remote_access
            && match self.reach {
                Reach::Owner => false,
                Reach::Library => true,
                Reach::Nic => config.unchecked_access,
            }
    }

    /// Whether endpoints can sleep on a descriptor of the library's.
    pub(crate) fn wakes(&self) -> bool {
        self.meeting == Meeting::Tcp
    }

    /// Whether the library reports dead peers, and completes the operations with them.
    pub(crate) fn tells_of_death(&self) -> bool {
        self.meeting == Meeting::Tcp
    }

    /// Options of the library's transports that differ from its own, unless the environment has
    /// them.
    ///
    /// Over TCP UCX connects while it is asked to go on, and waits by default until the other host
    /// answers. That keeps all other peers waiting; and if the connection on which a peer came is
    /// broken when it is answered, and a new one is refused at once, UCX takes the endpoint apart
    /// that it is about to hand out: a peer that is killed while it connects ends this process by
    /// an assertion (1.13; the code is the same in 1.22). A refusal that comes later is told as any
    /// broken connection is.
    ///
    /// The first name is that of 1.13, which compares options of transports without their prefix,
    /// the second that of later versions. What is no option 1.13 passes over, and 1.20 and 1.22
    /// refuse.
    pub(crate) fn connections(&self) -> &'static [(&'static str, &'static str)] {
        let theirs = std::env::var_os("UCX_TCP_CONN_NB").is_some();
        match self.transports == "tcp" && !theirs {
            true => &[("CONN_NB", "y"), ("TCP_CONN_NB", "y")],
            false => &[],
        }
    }

    /// Another such option, of the library itself: its workers look at shared memory from the
    /// beginning, not only while there are peers.
    ///
    /// Otherwise a worker asks a new queue, until it is told so, whether nothing is in it; and if a
    /// process has taken a place in the queue before the elements were made, what it wrote is gone
    /// and its place is not, so that this goes on for ever, within `ucp_worker_create` (seen with
    /// 1.22, where a queue has four times as many elements; the code is the same in 1.13). An
    /// endpoint is polled anyway, and a sender need not wake it.
    pub(crate) fn always_looks(&self) -> Option<(&'static str, &'static str)> {
        let theirs = std::env::var_os("UCX_ADAPTIVE_PROGRESS").is_some();
        (self.meeting == Meeting::Shm && !theirs).then_some(("ADAPTIVE_PROGRESS", "n"))
    }

    /// Options for the library's queues in shared memory: the environment's, and ours.
    pub(crate) fn queue(&self) -> Vec<(&'static str, String)> {
        let own = match self.meeting {
            Meeting::Tcp => return Vec::new(),
            Meeting::Shm if self.transports == "sysv" => "UCX_SYSV",
            Meeting::Shm => "UCX_POSIX",
        };
        let given = |name| {
            let of = |prefix| std::env::var(format!("{prefix}_{name}")).ok();
            of(own).or_else(|| of("UCX_MM"))
        };
        let element = ("MM_FIFO_ELEM_SIZE", given("FIFO_ELEM_SIZE").unwrap_or(ELEMENT.to_owned()));
        let size = given("FIFO_SIZE").map(|given| ("MM_FIFO_SIZE", given));
        [element].into_iter().chain(size).collect()
    }

    /// What both sides must have in common. Networks have protocols that versions agree about; what
    /// lies in shared memory is a version's own, and each side finds its way there by its own
    /// options.
    pub(crate) fn protocol(&self, version: &str) -> String {
        match self.meeting {
            Meeting::Tcp => format!("UCX {}", self.transports),
            Meeting::Shm => {
                let queue: Vec<String> = self.queue().into_iter().map(|(_, value)| value).collect();
                let mut protocol =
                    format!("UCX {version} {}, {}", self.transports, queue.join("*"));
                // As much of it as fits into a greeting.
                let end = (0..=MAX_PROTOCOL).rev().find(|at| protocol.is_char_boundary(*at));
                protocol.truncate(end.unwrap_or(0));
                protocol
            }
        }
    }
}
