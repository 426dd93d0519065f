//! Metrics of a server, for Prometheus and whatever else reads its text: `--metrics ADDR`.
//!
//! Counters of the server and of its process, and nothing else: no names of files, clients or
//! users. Off unless it is asked for, and on the loopback interface unless another address is
//! given: there is neither a password nor encryption. What comes in is hostile: see [`http`].

mod http;
mod process;
mod text;

pub(crate) use text::Text;

use crate::exit::{Code, Failure, Outcome};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
};

/// Answers to scrapes as long as it lives.
pub(crate) struct Metrics {
    responder: http::Responder,
}

impl Metrics {
    /// Listens at an address, `HOST:PORT` or a port of the loopback interface; `write` adds what
    /// this server counts. It runs on a thread of its own, and must not wait for long.
    pub(crate) fn start(
        address: SocketAddr,
        write: impl Fn(&mut Text) + Send + 'static,
    ) -> Outcome<Metrics> {
        let responder = http::Responder::start(address, move || {
            let mut text = Text::default();
            process::write(&mut text);
            write(&mut text);
            text.into_string()
        });
        responder.map(|responder| Metrics { responder }).map_err(|error| refused(address, &error))
    }

    /// Where they are.
    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.responder.address(), http::PATH)
    }
}

fn refused(address: SocketAddr, error: &io::Error) -> Failure {
    let text = format!("--metrics {address}: {error}");
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::new(Code::Failed, text).advise("take another port, or port 0 for a free one")
        }
        io::ErrorKind::PermissionDenied => {
            Failure::new(Code::Refused, text).advise("take a port of 1024 or more")
        }
        io::ErrorKind::AddrNotAvailable => Failure::new(Code::Unavailable, text)
            .advise("take an address of this machine: `petasos info` lists them"),
        _ => Failure::new(Code::Failed, text),
    }
}

/// Reads the address of the command line: `PORT`, `:PORT` or `HOST:PORT`.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("`{text}` is no address: write it as PORT or HOST:PORT");
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        return Ok((loopback, port).into());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    if host.is_empty() || host.contains([':', '/', '[']) {
        return Err(wrong());
    }
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| format!("`{host}` is not found: {error}"))?.next();
    found.ok_or_else(|| format!("`{host}` has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, address) in [
            ("9464", "127.0.0.1:9464"),
            (":9464", "127.0.0.1:9464"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(parse_address(text).unwrap().to_string(), address);
        }
        assert!(parse_address("localhost:1").unwrap().ip().is_loopback());
        for bad in ["", "x", "70000", "127.0.0.1", "::1:7:x", "tcp://h:1", ":x", "127.0.0.1:"] {
            assert!(parse_address(bad).is_err(), "{bad:?} was taken");
        }
    }
}
