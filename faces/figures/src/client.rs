//! The calling side: an engine for the transport of a URL.

use crate::{
    channel::Open,
    exit::{Code, Failure, MAKE_A_SECRET, Outcome},
    waiting::Waiting,
};
use petasos::{
    Engine, EngineConfig, OpenError, OpenOptions,
    auto::{AutoAddress, Node},
    fabric::{Address, Endpoint},
};
use std::{
    net::{IpAddr, Ipv4Addr, ToSocketAddrs},
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

/// An engine that can call the server at `url`.
pub fn engine(
    url: &Address,
    secret: Option<&Path>,
    waiting: Waiting,
    patience: Duration,
) -> Outcome<Engine> {
    let config = waiting.config();
    engine_over(petasos::open, url, secret, config, patience)
}

/// The same, with an endpoint that is opened in a way of its own, and settings of its own.
pub fn engine_over(
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

/// An endpoint that reaches the server at `url`.
pub fn endpoint(open: Open, url: &Address, secret: Option<&Path>) -> Outcome<Box<dyn Endpoint>> {
    let mut options = OpenOptions::default();
    options.secret_file = secret.map(Path::to_owned);
    let own = own(url, host(url)?);
    let endpoint = open(&own, &options).map_err(|error| refused(url, error))?;
    tracing::debug!(%url, own = %endpoint.address(), "an endpoint was opened");
    Ok(endpoint)
}

/// Why no endpoint could be opened that reaches the server at `url`.
pub fn refused(url: &Address, error: OpenError) -> Failure {
    match error {
        // It is said of where this side listens, which is no concern of the user's.
        OpenError::Tcp(petasos::tcp::OpenError::NeedsSecret(_)) => {
            let text = format!("{url} is on another machine: that needs a shared secret");
            Failure::new(Code::Refused, text).advise(MAKE_A_SECRET)
        }
        error => error.into(),
    }
}

/// The host of a URL that has one, as a number, looked up if it is a name. What is wrong with such
/// a URL is said here, before anything is opened for it.
///
/// # Errors
/// No port, or none that a server may have; no host, or one that is not found.
pub fn host(url: &Address) -> Outcome<Option<IpAddr>> {
    host_by(url, look_up)
}

/// The same, with what is asked for the address of a name.
fn host_by(
    url: &Address,
    look_up: impl FnOnce(String) -> Result<IpAddr, String>,
) -> Outcome<Option<IpAddr>> {
    let scheme = url.scheme();
    let rest = url.rest();
    let place = rest.strip_suffix("?encrypt").unwrap_or(rest);
    // Whole addresses of `auto` have others within; one that leaves all to the transport has no
    // host.
    let whole = scheme == "auto" && place.contains("://");
    if petasos::stays_on_node(scheme) || whole || place == "*" || loaded(scheme).is_some() {
        return Ok(None);
    }
    let wrong = |why: &str| {
        let text = format!("{url}: {why}");
        Failure::new(Code::Usage, text)
            .advise(format!("write {scheme}://HOST:PORT, as the server prints it"))
    };
    let (host, port) = match place.rsplit_once(':') {
        // The end of an IPv6 address is none.
        Some((host, port)) if !port.contains(']') && !host.is_empty() => (host, port),
        _ if place.starts_with(':') || place.is_empty() => return Err(wrong("it has no host")),
        _ => return Err(wrong("it has no port")),
    };
    match port.parse::<u16>() {
        Ok(0) => return Err(wrong("no server has port 0")),
        Ok(_) => {}
        Err(_) => return Err(wrong(&format!("`{port}` is no port"))),
    }
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if plain == "localhost" {
        return Ok(Some(Ipv4Addr::LOCALHOST.into()));
    }
    if let Ok(ip) = plain.parse() {
        return Ok(Some(ip));
    }
    match look_up(plain.to_owned()) {
        Ok(ip) => Ok(Some(ip)),
        Err(why) => Err(Failure::new(
            Code::Unreachable,
            format!("cannot reach {url}: the host `{plain}` is not found: {why}"),
        )
        .advise("see that the name is right, or write the host's address")),
    }
}

/// How long a host's name may take to be looked up.
const LOOK_UP: Duration = Duration::from_secs(10);

fn look_up(host: String) -> Result<IpAddr, String> {
    let (sender, receiver) = mpsc::channel();
    // It may wait for a name server for minutes, and cannot be stopped.
    let work = move || sender.send((&*host, 0_u16).to_socket_addrs().map(|mut found| found.next()));
    thread::Builder::new().spawn(work).map_err(|error| error.to_string())?;
    match receiver.recv_timeout(LOOK_UP) {
        Ok(Ok(Some(found))) => Ok(found.ip()),
        Ok(Ok(None)) => Err("it has no address".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {LOOK_UP:?}")),
    }
}

/// The transport with this scheme, if it was loaded from a file: it alone knows what stands in its
/// addresses.
fn loaded(scheme: &str) -> Option<&'static petasos::Transport> {
    petasos::Transport::of(scheme).filter(|transport| transport.file().is_some())
}

/// Where the calling side listens, so that answers find it: no further than it must. `ip` is what
/// the host of the URL was found to be, if it has one.
pub fn own(url: &Address, ip: Option<IpAddr>) -> String {
    let scheme = url.scheme();
    if let Some(transport) = loaded(scheme) {
        return transport.any.to_owned();
    }
    let mut place = url.rest().to_owned();
    if scheme == "auto"
        && let Ok(AutoAddress::Whole { node, members }) = AutoAddress::parse(url)
    {
        let shared = node == Node::local() && members.iter().any(|member| member.scheme() == "shm");
        match members.iter().find(|member| member.scheme() != "shm").filter(|_| !shared) {
            Some(network) => place = network.rest().to_owned(),
            None => return "auto://*".to_owned(),
        }
    } else if petasos::stays_on_node(scheme) {
        return format!("{scheme}://*");
    }
    let host = place.rsplit_once(':').map_or("", |(host, _)| host);
    let written = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match written.ok().or(ip) {
        Some(ip) if ip.is_loopback() && ip.is_ipv6() => format!("{scheme}://[::1]:0"),
        Some(ip) if ip.is_loopback() => format!("{scheme}://127.0.0.1:0"),
        Some(IpAddr::V6(_)) => format!("{scheme}://[::]:0"),
        _ => format!("{scheme}://0.0.0.0:0"),
    }
}

/// Reads a URL from the command line.
pub fn parse_url(text: &str) -> Result<Address, String> {
    let address = Address::parse(text).map_err(|error| error.to_string())?;
    if petasos::Transport::of(address.scheme()).is_some() {
        return Ok(address);
    }
    let built = petasos::transports().iter().filter(|t| t.missing().is_none());
    let schemes: Vec<_> = built.map(|t| format!("{}://", t.scheme)).collect();
    let mut error = format!("`{}` is no transport: a URL begins with {}", text, schemes.join(", "));
    for failure in petasos::not_loaded() {
        error += &format!("; not loaded: {failure}");
    }
    Err(error)
}

/// Whether both sides of such a transport are on one node, and share memory.
pub fn is_within_node(scheme: &str) -> bool {
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
pub fn transports(wanted: &[String]) -> Outcome<Vec<&'static petasos::Transport>> {
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
            let url: Address = url.parse().unwrap();
            // A name that is not this machine's.
            let elsewhere = url.rest().starts_with("node7").then(|| [10, 0, 0, 7].into());
            assert_eq!(own(&url, elsewhere.or_else(|| host(&url).unwrap())), expected);
        }
        let here = format!("auto://{}/shm://x,tcp://10.0.0.1:4040", Node::local());
        assert_eq!(own(&here.parse().unwrap(), None), "auto://*");
        // A name of this machine's own.
        let named = "tcp://node7:4040".parse().unwrap();
        assert_eq!(own(&named, Some([127, 0, 1, 1].into())), "tcp://127.0.0.1:0");
    }

    #[test]
    fn what_is_wrong_with_a_url() {
        // None of these is looked up: `localhost` and numbers neither.
        let unasked = |name: String| -> Result<IpAddr, String> { panic!("{name} is looked up") };
        for (url, code, why) in [
            ("tcp://127.0.0.1", Code::Usage, "no port"),
            ("tcp://node7", Code::Usage, "no port"),
            ("tcp://[::1]", Code::Usage, "no port"),
            ("tcp://:4040", Code::Usage, "no host"),
            ("tcp://127.0.0.1?encrypt", Code::Usage, "no port"),
            ("tcp://127.0.0.1:0", Code::Usage, "port 0"),
            ("tcp://127.0.0.1:99999", Code::Usage, "`99999` is no port"),
            ("tcp://127.0.0.1:ssh", Code::Usage, "`ssh` is no port"),
            ("auto://node7", Code::Usage, "no port"),
            ("ofi+tcp://127.0.0.1", Code::Usage, "no port"),
            ("ucx+rc://node7:x", Code::Usage, "`x` is no port"),
        ] {
            let failure = host_by(&url.parse().unwrap(), unasked).expect_err(url);
            assert_eq!(failure.code, code, "{failure}");
            let text = failure.to_string();
            assert!(text.contains(why) && text.contains(url) && !text.contains("secret"), "{text}");
        }
        let whole = "auto://0123456789abcdef/shm://x,tcp://10.0.0.1:4";
        for url in ["shm://x", "ofi+shm://x", "tcp://*", "auto://*", whole] {
            assert_eq!(host_by(&url.parse().unwrap(), unasked).unwrap(), None, "{url}");
        }
        let loopback = host_by(&"tcp://localhost:1".parse().unwrap(), unasked).unwrap();
        assert!(loopback.is_some_and(|ip| ip.is_loopback()));
    }

    /// What a resolver says is told, whatever the machine's own would say.
    #[test]
    fn names_are_looked_up() {
        let found = IpAddr::from([10, 1, 2, 3]);
        for url in ["tcp://node7:4040", "auto://node7:1", "tcp://node7:4040?encrypt"] {
            let url: Address = url.parse().unwrap();
            let answers = |name: String| (name == "node7").then_some(found).ok_or(name);
            assert_eq!(host_by(&url, answers).unwrap(), Some(found), "{url}");
            let failure = host_by(&url, |_| Err("no answer".to_owned())).unwrap_err();
            assert_eq!(failure.code, Code::Unreachable, "{failure}");
            let text = failure.to_string();
            let all = [url.as_str(), "`node7` is not found: no answer"];
            assert!(all.iter().all(|part| text.contains(part)), "{text}");
        }
        // A part of a name that is longer than any: no name server is asked.
        assert!(look_up(format!("{}.invalid", "x".repeat(64))).is_err());
    }
}
