//! Opens endpoints of the fabric: shared memory in the node, TCP between nodes, under one address.

use super::refusals::{Counted, Refusals};
use petasos_auto::{Auto, Member, Node, Scope};
use petasos_fabric::{Address, Incarnation};
use petasos_shm::Shm;
use petasos_tcp::{Config, Secret, TcpEndpoint};
use std::{
    env,
    ffi::{OsStr, OsString},
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::PathBuf,
};

/// The file with the secret that all processes of a job know.
pub(crate) const SECRET_FILE: &str = "FI_PETASOS_SECRET_FILE";
/// Where on this host peers of other nodes reach it: an Internet address, an interface or a subnet.
pub(crate) const HOST: &str = "FI_PETASOS_HOST";
/// Whether all that goes over TCP is encrypted: `1` or `0`.
pub(crate) const ENCRYPT: &str = "FI_PETASOS_ENCRYPT";
/// The address by which `petasos run` reaches this node, for its ranks.
const NODE: &str = "PETASOS_NODE_ADDRESS";

/// What asks for a place that no variable names.
const SOURCE: &str = "the address that the program is to be at";

/// An endpoint, and what is known of it beside.
pub(crate) struct Opened {
    pub(crate) net: Auto,
    pub(crate) job: Job,
    pub(crate) refusals: Refusals,
}

/// Which processes belong together: a short digest of their secret, or zeros where they have none.
/// It stands in the names of endpoints, so that those of another job are told apart. It proves
/// nothing: that is for the handshake.
pub(crate) type Job = [u8; 4];

fn setting(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The secret that this process was given, if it was given one.
fn secret() -> Result<Option<Secret>, String> {
    let Some(path) = setting(SECRET_FILE).map(PathBuf::from) else { return Ok(None) };
    Secret::from_file(&path).map(Some).map_err(|error| format!("{SECRET_FILE}: {error}"))
}

fn job_of(secret: Option<&Secret>) -> Job {
    secret.map_or([0; 4], |secret| {
        let code = secret.code("petasos provider job", &[]);
        std::array::from_fn(|at| code[at])
    })
}

/// The job of this process, as its environment says.
///
/// # Errors
/// A text that says what to do.
pub(crate) fn job() -> Result<Job, String> {
    secret().map(|secret| job_of(secret.as_ref()))
}

/// Whether this process was given a secret, without which hosts and ports name nothing.
pub(crate) fn has_secret() -> bool {
    setting(SECRET_FILE).is_some()
}

/// Opens an endpoint, as the environment says; at a place, where the program asks for one.
///
/// # Errors
/// A text that says what to do.
pub(crate) fn open(at: Option<SocketAddr>) -> Result<Opened, String> {
    let mut config = Config::default();
    config.secret = secret()?;
    let job = job_of(config.secret.as_ref());
    let encrypt = setting(ENCRYPT);
    config.encrypt = match encrypt.as_ref().map(|value| value.to_str()) {
        None | Some(Some("0")) => false,
        Some(Some("1")) => true,
        _ => return Err(format!("{ENCRYPT} is to be 1 or 0")),
    };
    if config.encrypt && config.secret.is_none() {
        return Err(format!("{ENCRYPT} takes a secret, in a file that {SECRET_FILE} names"));
    }
    let own = at.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
    let given = match (own, setting(HOST)) {
        (Some(own), _) => Some((SOURCE, own.to_string().into())),
        (None, Some(host)) => Some((HOST, host)),
        (None, None) => setting(NODE).filter(|_| config.secret.is_some()).map(|host| (NODE, host)),
    };
    let port = at.map_or(0, |at| at.port());
    let place = match &given {
        Some((name, host)) => place(name, host, port, config.secret.is_some())?,
        // Without one no other process connects there, and nothing listens beyond this machine.
        None if config.secret.is_none() => socket(Ipv4Addr::LOCALHOST.into(), port),
        None => socket(outward(), port),
    };
    // Every process of this machine reaches the loopback interface, and any peer may use memory by
    // its number. So what has no secret gets one that no peer knows: peers are those of this node
    // whose user the kernel has checked.
    if config.secret.is_none() {
        let random: Vec<u8> =
            (0..4).flat_map(|_| Incarnation::random().get().to_le_bytes()).collect();
        config.secret = Some(Secret::new(random).map_err(|error| error.to_string())?);
    }
    // A short name, as that of the endpoint has little room.
    let name = format!("shm://{:016x}", Incarnation::random().get());
    let parse = |text: &str| Address::parse(text).map_err(|error| error.to_string());
    let shm = Shm::open(&parse(&name)?).map_err(|error| error.to_string())?;
    let tcp = TcpEndpoint::open(&parse(&place)?, config).map_err(|error| match given {
        Some((name, _)) => format!("{name}: {place}: {error}"),
        None => format!("{place}: {error}"),
    })?;
    let (tcp, refusals) = Counted::new(tcp);
    let members = vec![
        Member { endpoint: Box::new(shm), scope: Scope::Node },
        Member { endpoint: Box::new(tcp), scope: Scope::Network },
    ];
    let net = Auto::open(Node::local(), members).map_err(|error| error.to_string())?;
    Ok(Opened { net, job, refusals })
}

fn socket(host: IpAddr, port: u16) -> String {
    format!("tcp://{}", SocketAddr::new(host, port))
}

/// Where to listen, as a variable of this name says: beyond this machine with a secret alone.
fn place(name: &str, host: &OsStr, port: u16, secret: bool) -> Result<String, String> {
    let text = host.to_str().unwrap_or_default();
    match text.parse::<IpAddr>() {
        Ok(host) if secret || host.is_loopback() => Ok(socket(host, port)),
        // An interface or a subnet.
        Err(_) if secret && Address::parse(&format!("tcp://{text}:{port}")).is_ok() => {
            Ok(format!("tcp://{text}:{port}"))
        }
        Err(_) if secret => Err(format!("{name} is {}, which is no address", host.display())),
        _ => Err(format!(
            "{name} is {}: to be reached from other hosts takes a secret, in a file that \
             {SECRET_FILE} names on all of them",
            host.display()
        )),
    }
}

/// The address by which this host reaches others; nothing is sent for it.
fn outward() -> IpAddr {
    let local = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // An address of documentation, which no host has.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    };
    local().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_auto::AutoAddress;
    use petasos_fabric::{Clock, Endpoint, Event};
    use std::time::Duration;

    /// Whether an endpoint over TCP with such a configuration comes to be a peer of that one.
    fn reaches(provider: &mut Auto, config: Config) -> bool {
        let Ok(AutoAddress::Whole { members, .. }) = AutoAddress::parse(provider.address()) else {
            panic!("an address of several members")
        };
        let here = Address::parse("tcp://127.0.0.1:0").unwrap();
        let mut stranger = TcpEndpoint::open(&here, config).unwrap();
        stranger.resolve(&members[1], Duration::from_secs(20)).unwrap();
        let (clock, mut events) = (Clock::start(), Vec::new());
        loop {
            provider.progress(clock.now(), 64, &mut Vec::new());
            stranger.progress(clock.now(), 64, &mut events);
            for event in events.drain(..) {
                match event {
                    Event::PeerUp { .. } => return true,
                    Event::PeerLost { .. } => return false,
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn without_a_secret_no_process_connects_over_the_loopback_interface() {
        let Opened { mut net, job, refusals } = open(None).unwrap();
        assert_eq!((job, refusals.count()), ([0; 4], 0));
        assert!(!reaches(&mut net, Config::default()));
        let mut guess = Config::default();
        guess.secret = Some(Secret::new(vec![0; 32]).unwrap());
        assert!(!reaches(&mut net, guess));
        assert!(refusals.count() >= 2, "{refusals:?}");
    }
}
