//! The channels that messages and data can take, each to be measured by itself.
//!
//! A further one is a further entry: by `open`, which is called on both sides, it says how an
//! endpoint is made whose traffic goes that way and no other.

use petasos::{
    OpenError, OpenOptions,
    channel::{self, Channels, Force, Over},
    fabric::{Endpoint, delegate},
};

/// A way between two endpoints.
#[derive(Debug)]
pub struct Channel {
    /// What it is called; no two of one transport have the same name.
    pub name: &'static str,
    /// The schemes of its transports, without providers.
    families: &'static [&'static str],
    /// What goes along it.
    pub carries: Carries,
    /// Of an RDMA network, with the transport's endpoint in place of a NIC.
    pub over_device: bool,
    /// Opens an endpoint that uses it.
    pub open: Open,
}

/// How an endpoint is opened.
pub type Open = fn(&str, &OpenOptions) -> Result<Box<dyn Endpoint>, OpenError>;

/// What a channel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Messages of these lengths in bytes, as far as the transport lets them be injected.
    Messages { shortest: usize, longest: usize },
    /// What is read from the other side's memory: any memory of it, or the transport's own.
    Gets { of_transport: bool },
}

/// The longest message that shared memory moves in one or two cache lines.
const SHORT: usize = 112;

/// All channels that there are. Longer messages lie contiguous in the ring; mapped is the
/// transport's own memory; gets over TCP are served by messages.
pub static CHANNELS: [Channel; 11] = [
    messages(&["shm"], "short packets", 0, SHORT),
    messages(&["shm"], "ring", SHORT + 1, usize::MAX),
    gets(&["shm"], "get", false),
    gets(&["shm"], "get, mapped", true),
    messages(&["tcp"], "stream", 0, usize::MAX),
    messages(&["auto", "ofi", "ucx"], "messages", 0, usize::MAX),
    gets(&["tcp", "auto", "ofi", "ucx"], "get", false),
    over(DEVICES, MP, |url, options| force(url, options, Force::Mp)),
    over(DEVICES, SHARED, |url, options| force(url, options, Force::Shared)),
    over(DEVICES, EXCLUSIVE, |url, options| force(url, options, Force::Exclusive)),
    over(DEVICES, BY_SIZE, |url, options| force(url, options, Force::None)),
];

/// Those of RDMA networks with as little credit as there can be; not among [`Channel::of`].
static SCARCE: [Channel; 3] = [
    over(DEVICES, "MP, scarce", |url, options| scarce(url, options, Force::Mp)),
    over(DEVICES, "shared RDMA, scarce", |url, options| scarce(url, options, Force::Shared)),
    over(DEVICES, "exclusive RDMA, scarce", |url, options| scarce(url, options, Force::Exclusive)),
];

/// What the channels of RDMA networks go over as a device.
const DEVICES: &[&str] = &["shm", "tcp", "ofi", "ucx"];

/// The channels of RDMA networks, over any endpoint.
pub const MP: &str = "MP";
pub const SHARED: &str = "shared RDMA";
pub const EXCLUSIVE: &str = "exclusive RDMA";
/// Each size by the channel that the thresholds say.
pub const BY_SIZE: &str = "by size";

/// The longest message of theirs, so that all sizes can be compared.
const LONGEST: usize = (128 << 10) + 1024;

const fn messages(
    families: &'static [&'static str],
    name: &'static str,
    shortest: usize,
    longest: usize,
) -> Channel {
    let carries = Carries::Messages { shortest, longest };
    Channel { name, families, carries, over_device: false, open: petasos::open }
}

const fn over(families: &'static [&'static str], name: &'static str, open: Open) -> Channel {
    let carries = Carries::Messages { shortest: 0, longest: usize::MAX };
    Channel { name, families, carries, over_device: true, open }
}

const fn gets(
    families: &'static [&'static str],
    name: &'static str,
    of_transport: bool,
) -> Channel {
    let carries = Carries::Gets { of_transport };
    Channel { name, families, carries, over_device: false, open: petasos::open }
}

/// The channels over an endpoint of a transport, with the thresholds of this machine.
fn force(url: &str, options: &OpenOptions, force: Force) -> Result<Box<dyn Endpoint>, OpenError> {
    open_over(url, options, config(force))
}

/// The same, with room for one or two messages of 64 bytes to a peer.
fn scarce(url: &str, options: &OpenOptions, force: Force) -> Result<Box<dyn Endpoint>, OpenError> {
    let mut config = config(force);
    config.window = 2;
    config.lent = 2;
    config.exclusive.cells = channel::fifo::MIN_CELLS;
    open_over(url, options, config)
}

fn config(force: Force) -> channel::Config {
    let mut config = channel::Config::default();
    config.force = force;
    config.limits.max_message = LONGEST;
    config.limits.max_inject = LONGEST;
    config
}

fn open_over(
    url: &str,
    options: &OpenOptions,
    config: channel::Config,
) -> Result<Box<dyn Endpoint>, OpenError> {
    let inner = Whichever { inner: petasos::open(url, options)? };
    Ok(Box::new(Channels::new(Over::new(inner), config)))
}

impl Channel {
    /// Whether messages go along it.
    pub fn has_messages(&self) -> bool {
        matches!(self.carries, Carries::Messages { .. })
    }

    /// The channels of a transport.
    pub fn of(scheme: &str) -> impl Iterator<Item = &'static Channel> + use<'_> {
        let family = scheme.split('+').next().unwrap_or(scheme);
        CHANNELS.iter().filter(move |channel| channel.families.contains(&family))
    }

    /// The one of this name.
    pub fn named(scheme: &str, name: &str) -> Option<&'static Channel> {
        let scarce = SCARCE.iter().find(|channel| channel.name == name);
        Channel::of(scheme).find(|channel| channel.name == name).or(scarce)
    }

    /// The same with as little credit as there can be, where that can be chosen.
    pub fn scarce(&self) -> Option<&'static Channel> {
        let of_this = |channel: &&Channel| channel.name.strip_suffix(", scarce") == Some(self.name);
        SCARCE.iter().find(of_this)
    }

    /// Those that are compared in one plot.
    pub fn panel(&self, scheme: &str) -> String {
        let what = match self.carries {
            Carries::Messages { .. } => "messages",
            Carries::Gets { .. } => "remote access",
        };
        let device = if self.over_device { " as a device" } else { "" };
        format!("{scheme}{device}, {what}")
    }
}

/// An endpoint of whichever transport.
struct Whichever {
    inner: Box<dyn Endpoint>,
}

impl Endpoint for Whichever {
    delegate! {
        inner: address incarnation capabilities resolve peer forget inject submit cancel progress
        poll_message poll_completion arm fd notifier alloc register export import release
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_them_apart() {
        for channel in &CHANNELS {
            for family in channel.families {
                let found = Channel::named(family, channel.name).unwrap();
                assert!(std::ptr::eq(found, channel), "{channel:?}");
            }
        }
        for channel in &SCARCE {
            let of = CHANNELS.iter().filter_map(Channel::scarce).filter(|s| s.name == channel.name);
            assert_eq!(of.count(), 1, "{channel:?}");
            assert!(Channel::named("shm", channel.name).is_some(), "{channel:?}");
        }
        assert!(Channel::named("ofi+shm", "messages").is_some());
        assert!(Channel::named("tcp", "short packets").is_none());
    }
}
