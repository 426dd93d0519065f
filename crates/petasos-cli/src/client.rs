//! The calling side: an engine for the transport of a URL.

use crate::{
    channel::Open,
    exit::{Code, Failure, Outcome},
    server::Waiting,
};
use petasos::{
    Engine, EngineConfig, OpenOptions,
    auto::{Node, Places},
    fabric::{Address, Endpoint},
};
use std::{net::IpAddr, path::Path, time::Duration};

/// An engine that can call whoever is at `url`.
pub(crate) fn engine(
    url: &Address,
    secret: Option<&Path>,
    waiting: Waiting,
    patience: Duration,
) -> Outcome<Engine> {
    let config = waiting.config();
    engine_over(petasos::open, url, secret, config, patience)
}

/// The same, with an endpoint that is opened in a way of its own, and settings of its own.
pub(crate) fn engine_over(
    open: Open,
    url: &Address,
    secret: Option<&Path>,
    mut config: EngineConfig,
    patience: Duration,
) -> Outcome<Engine> {
    let endpoint = endpoint(open, url, secret)?;
    config.patience = patience;
    config.timeout = config.timeout.max(patience);
    Ok(Engine::new(endpoint, config))
}

/// An endpoint that reaches whoever is at `url`.
pub(crate) fn endpoint(
    open: Open,
    url: &Address,
    secret: Option<&Path>,
) -> Outcome<Box<dyn Endpoint>> {
    let mut options = OpenOptions::default();
    options.secret_file = secret.map(Path::to_owned);
    Ok(open(&own(url), &options)?)
}

/// Where the calling side listens, so that answers find it: no further than it must.
pub(crate) fn own(url: &Address) -> String {
    let scheme = url.scheme();
    let mut place = url.rest().to_owned();
    if scheme == "auto"
        && let Ok(Places::Known { node, ways }) = Places::parse(url)
    {
        let shared = node == Node::here() && ways.iter().any(|way| way.scheme() == "shm");
        match ways.iter().find(|way| way.scheme() != "shm").filter(|_| !shared) {
            Some(network) => place = network.rest().to_owned(),
            None => return "auto://*".to_owned(),
        }
    } else if petasos::stays_on_node(scheme) {
        return format!("{scheme}://*");
    }
    let host = place.rsplit_once(':').map_or("", |(host, _)| host);
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() && ip.is_ipv6() => format!("{scheme}://[::1]:0"),
        Ok(ip) if ip.is_loopback() => format!("{scheme}://127.0.0.1:0"),
        Ok(IpAddr::V6(_)) => format!("{scheme}://[::]:0"),
        Err(_) if host == "localhost" => format!("{scheme}://127.0.0.1:0"),
        _ => format!("{scheme}://0.0.0.0:0"),
    }
}

/// Reads a URL from the command line.
pub(crate) fn parse_url(text: &str) -> Result<Address, String> {
    let address = Address::parse(text).map_err(|error| error.to_string())?;
    if petasos::Transport::of(address.scheme()).is_some() {
        return Ok(address);
    }
    let built = petasos::transports().iter().filter(|t| t.missing().is_none());
    let schemes: Vec<_> = built.map(|t| format!("{}://", t.scheme)).collect();
    Err(format!("`{}` is no transport: a URL begins with {}", text, schemes.join(", ")))
}

/// Whether both sides of such a transport are on one node, and share memory.
pub(crate) fn is_within_node(scheme: &str) -> bool {
    scheme == "auto" || petasos::stays_on_node(scheme)
}

/// A transport by the scheme of its addresses, of one provider if that says so.
fn by_scheme(scheme: &str) -> Option<&'static petasos::Transport> {
    let family = petasos::Transport::of(scheme)?;
    if family.scheme == scheme {
        return Some(family);
    }
    // For as long as the command runs, which asks once for each.
    let mut provider = *family;
    provider.scheme = String::leak(scheme.to_owned());
    provider.any = match scheme.split_once('?') {
        Some((_, option)) => String::leak(format!("{}?{option}", family.any)),
        None => String::leak(format!("{scheme}://*")),
    };
    Some(Box::leak(Box::new(provider)))
}

/// The transports asked for, or else all that go between processes and are built in.
pub(crate) fn transports(wanted: &[String]) -> Outcome<Vec<&'static petasos::Transport>> {
    let between = |t: &&petasos::Transport| t.scheme != "self";
    let known = || petasos::transports().iter().filter(between);
    if wanted.is_empty() {
        return Ok(known().filter(|t| t.by_default).collect());
    }
    let mut chosen: Vec<&petasos::Transport> = Vec::new();
    for name in wanted {
        if chosen.iter().any(|transport| transport.scheme == name) {
            continue;
        }
        let Some(transport) = by_scheme(name).filter(between) else {
            let names: Vec<_> =
                known().filter(|t| t.missing().is_none()).map(|t| t.scheme).collect();
            let text = format!("`{name}` is no transport between processes");
            let advice = format!("--transport {}", names.join(","));
            return Err(Failure::new(Code::Usage, text).advise(advice));
        };
        if let Some(missing) = transport.missing() {
            return Err(Failure::new(Code::Unavailable, format!("{name}: {missing}")));
        }
        chosen.push(transport);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_stays_loopback() {
        for (url, expected) in [
            ("tcp://127.0.0.1:4040", "tcp://127.0.0.1:0"),
            ("tcp://localhost:4040", "tcp://127.0.0.1:0"),
            ("tcp://[::1]:4040", "tcp://[::1]:0"),
            ("tcp://[fd00::1]:4040", "tcp://[::]:0"),
            ("tcp://node7:4040", "tcp://0.0.0.0:0"),
            ("shm://x", "shm://*"),
            ("auto://127.0.0.1:4040", "auto://127.0.0.1:0"),
            ("auto://node7:4040", "auto://0.0.0.0:0"),
            ("auto://0123456789abcdef/shm://x,tcp://127.0.0.1:4040", "auto://127.0.0.1:0"),
            ("auto://0123456789abcdef/shm://x,tcp://[fd00::1]:4040", "auto://[::]:0"),
        ] {
            assert_eq!(own(&url.parse().unwrap()), expected);
        }
        let here = format!("auto://{}/shm://x,tcp://10.0.0.1:4040", Node::here());
        assert_eq!(own(&here.parse().unwrap()), "auto://*");
    }
}
