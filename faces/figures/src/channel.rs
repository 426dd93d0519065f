//! The channels that messages and data can take, each to be measured by itself.
//!
//! A further one is a further entry: by `open`, which is called on both sides, it says how an
//! endpoint is made whose traffic goes that way and no other.

use petasos::{
    OpenError, OpenOptions,
    channel::{self, Channels, Force},
    fabric::{Address, Endpoint},
    ofi, ucx,
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
    /// One of the channels of RDMA networks, alone or by size.
    pub of_nic: bool,
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
    of_nic(MP, |url, options| force(url, options, Force::Mp)),
    of_nic(SHARED, |url, options| force(url, options, Force::Shared)),
    of_nic(EXCLUSIVE, |url, options| force(url, options, Force::Exclusive)),
    of_nic(BY_SIZE, |url, options| force(url, options, Force::None)),
];

/// Those of RDMA networks with as little credit as there can be; not among [`Channel::of`].
static SCARCE: [Channel; 3] = [
    of_nic("MP, scarce", |url, options| scarce(url, options, Force::Mp)),
    of_nic("shared RDMA, scarce", |url, options| scarce(url, options, Force::Shared)),
    of_nic("exclusive RDMA, scarce", |url, options| scarce(url, options, Force::Exclusive)),
];

/// The transports over NICs.
const NICS: &[&str] = &["ofi", "ucx"];

/// The channels of RDMA networks.
pub const MP: &str = "MP";
pub const SHARED: &str = "shared RDMA";
pub const EXCLUSIVE: &str = "exclusive RDMA";
/// Each size by the channel that the thresholds say.
pub const BY_SIZE: &str = "by size";

const fn messages(
    families: &'static [&'static str],
    name: &'static str,
    shortest: usize,
    longest: usize,
) -> Channel {
    let carries = Carries::Messages { shortest, longest };
    Channel { name, families, carries, of_nic: false, open: petasos::open }
}

const fn of_nic(name: &'static str, open: Open) -> Channel {
    let carries = Carries::Messages { shortest: 0, longest: usize::MAX };
    Channel { name, families: NICS, carries, of_nic: true, open }
}

const fn gets(
    families: &'static [&'static str],
    name: &'static str,
    of_transport: bool,
) -> Channel {
    let carries = Carries::Gets { of_transport };
    Channel { name, families, carries, of_nic: false, open: petasos::open }
}

/// One channel over the NIC of a transport, or each by the thresholds of this machine.
fn force(url: &str, options: &OpenOptions, force: Force) -> Result<Box<dyn Endpoint>, OpenError> {
    open_with(url, options, |config| config.force = force)
}

/// The same, with room for one or two messages of 64 bytes to a peer.
fn scarce(url: &str, options: &OpenOptions, force: Force) -> Result<Box<dyn Endpoint>, OpenError> {
    open_with(url, options, |config| {
        config.force = force;
        config.window = 2;
        config.lent = 2;
        config.exclusive.cells = channel::fifo::MIN_CELLS;
    })
}

/// As [`petasos::open`] does it for these schemes, with settings of channels that `change` changes.
fn open_with(
    url: &str,
    options: &OpenOptions,
    change: impl FnOnce(&mut channel::Config),
) -> Result<Box<dyn Endpoint>, OpenError> {
    let address = Address::parse(url)?;
    let file = options.secret_file.as_ref();
    match address.scheme().split('+').next() {
        Some("ofi") => {
            let mut config = ofi::Config::default();
            let secret = file.map(ofi::Secret::from_file).transpose();
            config.secret = secret.map_err(ofi::OpenError::from)?;
            let nic = ofi::Nic::open(&address, config)?;
            let mut settings = nic.settings();
            change(&mut settings);
            Ok(ofi::boxed(Channels::new(nic, settings)))
        }
        Some("ucx") => {
            let mut config = ucx::Config::default();
            let secret = file.map(ucx::Secret::from_file).transpose();
            config.secret = secret.map_err(ucx::OpenError::from)?;
            let nic = ucx::Nic::open(&address, config)?;
            let mut settings = nic.settings();
            change(&mut settings);
            Ok(ucx::boxed(Channels::new(nic, settings)))
        }
        // Channels are found by the families of their transports.
        _ => petasos::open(url, options),
    }
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
        let of_nic = if self.of_nic { ", each channel" } else { "" };
        format!("{scheme}, {what}{of_nic}")
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
            assert!(Channel::named("ofi+tcp", channel.name).is_some(), "{channel:?}");
        }
        assert!(Channel::named("ofi+shm", "messages").is_some());
        assert!(Channel::named("tcp", "short packets").is_none());
        assert!(Channel::named("ucx+posix", MP).is_some() && Channel::named("shm", MP).is_none());
    }
}
