//! Opens endpoints of the fabric: shared memory in the node, TCP between nodes, under one address.

use petasos_auto::{Auto, Member, Node, Scope};
use petasos_fabric::{Address, Incarnation};
use petasos_shm::Shm;
use petasos_tcp::{Config, Secret, TcpEndpoint};
use std::{
    env,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::PathBuf,
};

/// The file with the secret that all processes of a job know.
pub(crate) const SECRET_FILE: &str = "FI_PETASOS_SECRET_FILE";
/// The address of this host at which peers of other nodes reach it.
pub(crate) const HOST: &str = "FI_PETASOS_HOST";

/// Opens an endpoint, as the environment says.
///
/// # Errors
/// A text that says what to do.
pub(crate) fn open() -> Result<Auto, String> {
    let setting = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let mut config = Config::default();
    if let Some(path) = setting(SECRET_FILE).map(PathBuf::from) {
        let secret = Secret::from_file(&path);
        config.secret = Some(secret.map_err(|error| format!("{SECRET_FILE}: {error}"))?);
    }
    let host = match setting(HOST) {
        Some(host) => host
            .to_str()
            .and_then(|host| host.parse().ok())
            .ok_or_else(|| format!("{HOST} is {}, which is no Internet address", host.display()))?,
        // Without one no other process connects there, and nothing listens beyond this machine.
        None if config.secret.is_none() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        None => outward(),
    };
    if config.secret.is_none() && !host.is_loopback() {
        return Err(format!(
            "{HOST} is {host}: to be reached from other hosts takes a secret, in a file that \
             {SECRET_FILE} names on all of them"
        ));
    }
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
    let place = parse(&format!("tcp://{}", SocketAddr::new(host, 0)))?;
    let tcp = TcpEndpoint::open(&place, config).map_err(|error| error.to_string())?;
    let members = vec![
        Member { endpoint: Box::new(shm), scope: Scope::Node },
        Member { endpoint: Box::new(tcp), scope: Scope::Network },
    ];
    Auto::open(Node::local(), members).map_err(|error| error.to_string())
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
        let mut provider = open().unwrap();
        assert!(!reaches(&mut provider, Config::default()));
        let mut guess = Config::default();
        guess.secret = Some(Secret::new(vec![0; 32]).unwrap());
        assert!(!reaches(&mut provider, guess));
    }
}
