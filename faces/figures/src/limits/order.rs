//! What a helper process is told to do, as a line of text.

use std::{fmt, io, str::FromStr};

/// How a side waits for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Reads that do not block, again and again.
    Spinning,
    /// Reads that block.
    Sleeping,
}

/// A way to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Tcp,
    Unix,
}

/// What the helper is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Hold memory that the parent reads.
    Memory { bytes: usize },
    /// Send messages of so many bytes back over TCP.
    Echo { waiting: Waiting, bytes: usize },
    /// Send up to `bytes` over TCP each time it is asked to.
    Stream { bytes: usize },
    /// Take new connections, one after the other.
    Connect { family: Family, waiting: Waiting },
}

/// A request, and where it is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) core: Option<usize>,
    pub(super) alone: bool,
    pub(super) request: Request,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.request {
            Request::Memory { bytes } => write!(f, "memory {bytes}")?,
            Request::Echo { waiting: Waiting::Spinning, bytes } => {
                write!(f, "echo spinning {bytes}")?;
            }
            Request::Echo { waiting: Waiting::Sleeping, bytes } => {
                write!(f, "echo sleeping {bytes}")?;
            }
            Request::Stream { bytes } => write!(f, "stream {bytes}")?,
            Request::Connect { family, waiting } => {
                let family = if family == Family::Tcp { "tcp" } else { "unix" };
                let waiting = if waiting == Waiting::Spinning { "spinning" } else { "sleeping" };
                write!(f, "connect {family} {waiting}")?;
            }
        }
        if let Some(core) = self.core {
            write!(f, " core {core}")?;
        }
        if self.alone { write!(f, " alone") } else { Ok(()) }
    }
}

impl FromStr for Order {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("asked for {line:?}"));
        let number = |word: &str| word.parse::<usize>().map_err(|_| unknown());
        let words: Vec<&str> = line.split_whitespace().collect();
        let (request, place) = match words.as_slice() {
            ["memory", bytes, place @ ..] => (Request::Memory { bytes: number(bytes)? }, place),
            ["stream", bytes, place @ ..] => (Request::Stream { bytes: number(bytes)? }, place),
            ["echo", "spinning", bytes, place @ ..] => {
                (Request::Echo { waiting: Waiting::Spinning, bytes: number(bytes)? }, place)
            }
            ["echo", "sleeping", bytes, place @ ..] => {
                (Request::Echo { waiting: Waiting::Sleeping, bytes: number(bytes)? }, place)
            }
            ["connect", family, waiting, place @ ..] => {
                let family = match *family {
                    "tcp" => Family::Tcp,
                    "unix" => Family::Unix,
                    _ => return Err(unknown()),
                };
                let waiting = match *waiting {
                    "spinning" => Waiting::Spinning,
                    "sleeping" => Waiting::Sleeping,
                    _ => return Err(unknown()),
                };
                (Request::Connect { family, waiting }, place)
            }
            _ => return Err(unknown()),
        };
        let (core, alone) = match place {
            [] => (None, false),
            ["alone"] => (None, true),
            ["core", core] => (Some(number(core)?), false),
            ["core", core, "alone"] => (Some(number(core)?), true),
            _ => return Err(unknown()),
        };
        Ok(Self { core, alone, request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_way() {
        let requests = [
            Request::Memory { bytes: 7 },
            Request::Echo { waiting: Waiting::Spinning, bytes: 64 },
            Request::Echo { waiting: Waiting::Sleeping, bytes: 65_536 },
            Request::Stream { bytes: 1 << 30 },
            Request::Connect { family: Family::Tcp, waiting: Waiting::Spinning },
            Request::Connect { family: Family::Unix, waiting: Waiting::Sleeping },
        ];
        for request in requests {
            for (core, alone) in [(None, false), (Some(3), false), (Some(0), true), (None, true)] {
                let order = Order { core, alone, request };
                assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
            }
        }
        for line in [
            "",
            "memory",
            "memory x",
            "echo loudly",
            "stream 1 core",
            "stream 1 alone 2",
            "connect x spinning",
        ] {
            assert!(line.parse::<Order>().is_err(), "{line}");
        }
    }
}
