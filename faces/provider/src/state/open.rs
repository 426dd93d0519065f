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
        // Nothing listens beyond this machine without a secret.
        None if config.secret.is_none() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        None => outward(),
    };
    if config.secret.is_none() && !host.is_loopback() {
        return Err(format!(
            "{HOST} is {host}: to be reached from other hosts takes a secret, in a file that \
             {SECRET_FILE} names on all of them"
        ));
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
    Auto::open(Node::here(), members).map_err(|error| error.to_string())
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
