//! The channels that messages and data can take, each to be measured by itself.
//!
//! A further one is a further entry: by `open`, which is called on both sides, it says how an
//! endpoint is made whose traffic goes that way and no other.

use petasos::{OpenError, OpenOptions, fabric::Endpoint};

/// A way between two endpoints.
#[derive(Debug)]
pub(crate) struct Channel {
    /// What it is called; no two of one transport have the same name.
    pub(crate) name: &'static str,
    /// The scheme of its transport.
    pub(crate) scheme: &'static str,
    /// What goes along it.
    pub(crate) carries: Carries,
    /// Opens an endpoint that uses it.
    pub(crate) open: Open,
}

/// How an endpoint is opened.
pub(crate) type Open = fn(&str, &OpenOptions) -> Result<Box<dyn Endpoint>, OpenError>;

/// What a channel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// Messages of these lengths in bytes, as far as the transport lets them be injected.
    Messages { shortest: usize, longest: usize },
    /// What is read from the other side's memory: any memory of it, or the transport's own.
    Gets { of_transport: bool },
}

/// The longest message that shared memory moves in one or two cache lines.
const SHORT: usize = 112;

/// All channels that there are. Longer messages lie contiguous in the ring; mapped is the transport's
/// own memory; gets over TCP are served by messages.
pub(crate) static CHANNELS: [Channel; 6] = [
    messages("shm", "short packets", 0, SHORT),
    messages("shm", "ring", SHORT + 1, usize::MAX),
    gets("shm", "get", false),
    gets("shm", "get, mapped", true),
    messages("tcp", "stream", 0, usize::MAX),
    gets("tcp", "get", false),
];

const fn messages(
    scheme: &'static str,
    name: &'static str,
    shortest: usize,
    longest: usize,
) -> Channel {
    let carries = Carries::Messages { shortest, longest };
    Channel { name, scheme, carries, open: petasos::open }
}

const fn gets(scheme: &'static str, name: &'static str, of_transport: bool) -> Channel {
    Channel { name, scheme, carries: Carries::Gets { of_transport }, open: petasos::open }
}

impl Channel {
    /// The channels of a transport.
    pub(crate) fn of(scheme: &str) -> impl Iterator<Item = &'static Channel> {
        CHANNELS.iter().filter(move |channel| channel.scheme == scheme)
    }

    /// The one of this name.
    pub(crate) fn named(scheme: &str, name: &str) -> Option<&'static Channel> {
        Channel::of(scheme).find(|channel| channel.name == name)
    }

    /// Those that are compared in one plot.
    pub(crate) fn panel(&self) -> String {
        let what = match self.carries {
            Carries::Messages { .. } => "messages",
            Carries::Gets { .. } => "remote access",
        };
        format!("{}, {what}", self.scheme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_them_apart() {
        for channel in &CHANNELS {
            let found = Channel::named(channel.scheme, channel.name).unwrap();
            assert!(std::ptr::eq(found, channel), "{channel:?}");
        }
        assert!(Channel::named("tcp", "short packets").is_none());
    }
}
