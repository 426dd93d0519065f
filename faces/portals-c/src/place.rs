//! Where the processes of a node number and a process number are: their addresses are computed, so
//! nothing is kept of processes, and no exchange is needed.
//!
//! Without a secret, processes of one node and user reach each other, over shared memory. With one,
//! the node number is the host's IPv4 address, and the process number says at which TCP port a
//! process listens, in addition.

use crate::abi::ptl_process_t;
use petasos_auto::{Auto, AutoAddress, Member, Node, Scope};
use petasos_fabric::{Address, Endpoint};
use petasos_shm::Shm;
use petasos_tcp::{Config, Secret, TcpEndpoint};
use std::{
    env,
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::{
            fs::OpenOptionsExt,
            net::{SocketAddr, UnixListener},
        },
    },
};

/// The file with the secret that all processes of a job know.
const SECRET_FILE: &str = "PETASOS_PORTALS_SECRET_FILE";
/// The IPv4 address of this host at which processes of other hosts reach it.
const HOST: &str = "PETASOS_PORTALS_HOST";
/// The first of the TCP ports.
const PORT: &str = "PETASOS_PORTALS_PORT";
/// `tcp`: without shared memory, also between processes of one host.
const TRANSPORT: &str = "PETASOS_PORTALS_TRANSPORT";

/// Below the ports that the system gives to those that do not care.
const FIRST_PORT: u16 = 24_000;
/// What the names of sockets begin with.
const NAME: &str = "portals4-";
/// The longest directory in which they fit: the address of a socket has 107 bytes.
const LONGEST: usize = 107 - "/portals4-01234567-1023-3".len();

/// Interfaces of a process, each with a port.
pub(crate) const INTERFACES: u32 = 4;
/// Process numbers: from 1 on, and no more.
const PIDS: u32 = crate::abi::PID_MAX;

/// How processes of other hosts are reached.
#[derive(Clone, Debug)]
struct Network {
    first_port: u16,
    secret: Secret,
    /// Without shared memory.
    alone: bool,
}

/// Where this process is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    nid: u32,
    user: u32,
    network: Option<Network>,
    /// Where names are that no other user can take: of the job, on this node.
    directory: Option<String>,
}

/// What the job of this process gives, where the environment says nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct FromJob {
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) host: Option<Ipv4Addr>,
    /// The private directory of its sockets on this node.
    pub(crate) directory: Option<String>,
}

fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

impl Place {
    /// As the environment says, or else the job.
    ///
    /// # Errors
    /// A text that says what to do.
    pub(crate) fn find(job: &FromJob) -> Result<Place, String> {
        let secret = match (setting(SECRET_FILE), &job.secret) {
            (Some(path), _) => {
                Some(Secret::from_file(&path).map_err(|e| format!("{SECRET_FILE}: {e}"))?)
            }
            (None, Some(bytes)) if job.host.is_some() => {
                Some(Secret::new(bytes.clone()).map_err(|error| error.to_string())?)
            }
            _ => None,
        };
        let host = match setting(HOST) {
            Some(host) => {
                let parsed = host.parse::<Ipv4Addr>();
                Some(parsed.map_err(|_| format!("{HOST} is {host}, which is no IPv4 address"))?)
            }
            None => job.host,
        };
        let alone = match setting(TRANSPORT).as_deref() {
            None | Some("auto") => false,
            Some("tcp") => true,
            Some(other) => return Err(format!("{TRANSPORT} is {other}: auto or tcp")),
        };
        let first_port = match setting(PORT) {
            None => FIRST_PORT,
            Some(port) => {
                let parsed = port.parse::<u16>().ok();
                let fits =
                    |port: &u16| *port >= 1024 && *port <= u16::MAX - (PIDS * INTERFACES) as u16;
                parsed.filter(fits).ok_or_else(|| {
                    format!(
                        "{PORT} is {port}: the first of {} ports from 1024 on",
                        PIDS * INTERFACES
                    )
                })?
            }
        };
        let host = match (host, &secret) {
            (host, None) if alone || host.is_some_and(|host| !host.is_loopback()) => {
                return Err(format!(
                    "{HOST} or {TRANSPORT} asks for TCP: that takes a secret, in a file that \
                     {SECRET_FILE} names on all hosts"
                ));
            }
            (Some(host), _) => host,
            (None, Some(_)) => outward(),
            (None, None) => Ipv4Addr::LOCALHOST,
        };
        let network = secret.map(|secret| Network { first_port, secret, alone });
        let user = rustix::process::geteuid().as_raw();
        let directory = job.directory.clone().filter(|directory| directory.len() <= LONGEST);
        Ok(Place { nid: host.to_bits(), user, network, directory })
    }

    /// The node number of this process.
    pub(crate) fn nid(&self) -> u32 {
        self.nid
    }

    fn shm(&self, interface: u32, id: ptl_process_t) -> String {
        let of = format!("{:08x}-{}-{interface}", id.nid, id.pid);
        match &self.directory {
            Some(directory) => format!("shm://{directory}/{NAME}{of}"),
            None => format!("shm://{NAME}{}-{of}", self.user),
        }
    }

    fn socket(network: &Network, interface: u32, id: ptl_process_t) -> SocketAddrV4 {
        let port = network.first_port + (id.pid * INTERFACES + interface) as u16;
        SocketAddrV4::new(Ipv4Addr::from_bits(id.nid), port)
    }

    /// Where an interface of a process is; `None` if there is no such process.
    pub(crate) fn address(&self, interface: u32, id: ptl_process_t) -> Option<Address> {
        if id.pid >= PIDS {
            return None;
        }
        let shm = || Address::parse(&self.shm(interface, id)).ok();
        let Some(network) = &self.network else {
            return shm().filter(|_| id.nid == self.nid);
        };
        let socket = Place::socket(network, interface, id);
        let tcp = Address::parse(&format!("tcp://{socket}")).ok()?;
        match network.alone {
            true => Some(tcp),
            false if id.nid == self.nid => AutoAddress::compose(Node::local(), &[shm()?, tcp]).ok(),
            false => Address::parse(&format!("auto://{socket}")).ok(),
        }
    }

    /// The process whose interface is at an address; `None` if it is not one of these.
    pub(crate) fn process(&self, interface: u32, address: &Address) -> Option<ptl_process_t> {
        let id = match &self.network {
            None => {
                let mut parts = address.rest().rsplit('-').skip(1);
                let pid = parts.next()?.parse().ok()?;
                let nid = u32::from_str_radix(parts.next()?, 16).ok()?;
                ptl_process_t { nid, pid }
            }
            Some(network) => {
                let text = address.as_str();
                let tcp = &text[text.rfind("tcp://")? + "tcp://".len()..];
                let socket: SocketAddrV4 = tcp.split(',').next()?.parse().ok()?;
                let number = socket.port().checked_sub(network.first_port)?;
                let pid = u32::from(number) / INTERFACES;
                ptl_process_t { nid: socket.ip().to_bits(), pid }
            }
        };
        // Only what the same computation gives is an address of this process.
        let same = match &self.network {
            Some(network) if !network.alone && id.nid != self.nid => {
                let socket = Place::socket(network, interface, id);
                address.as_str().contains(&format!("tcp://{socket}"))
            }
            _ => self.address(interface, id).as_ref() == Some(address),
        };
        (same && id.pid < PIDS).then_some(id)
    }

    /// Opens the endpoint of an interface of this process.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn open(&self, interface: u32, pid: u32) -> Result<Box<dyn Endpoint>, String> {
        let id = ptl_process_t { nid: self.nid, pid };
        let text = |error: &dyn ToString| error.to_string();
        let parse = |url: &str| Address::parse(url).map_err(|error| text(&error));
        let shm = || Shm::open(&parse(&self.shm(interface, id))?).map_err(|error| text(&error));
        let Some(network) = &self.network else {
            return Ok(Box::new(shm()?));
        };
        let mut config = Config::default();
        config.secret = Some(network.secret.clone());
        let at = parse(&format!("tcp://{}", Place::socket(network, interface, id)))?;
        let tcp = TcpEndpoint::open(&at, config).map_err(|error| text(&error))?;
        if network.alone {
            return Ok(Box::new(tcp));
        }
        let members = vec![
            Member { endpoint: Box::new(shm()?), scope: Scope::Node },
            Member { endpoint: Box::new(tcp), scope: Scope::Network },
        ];
        Ok(Box::new(Auto::open(Node::local(), members).map_err(|error| text(&error))?))
    }

    /// Takes a process number: the one that is wanted, or any; `None` if it is taken, or all are.
    ///
    /// # Errors
    /// What the system says, if it is not that.
    pub(crate) fn claim(&self, wanted: Option<u32>) -> io::Result<Option<Claim>> {
        if let Some(pid) = wanted {
            return self.claim_one(pid);
        }
        // Processes that start together do not try the same ones.
        let first = std::process::id() % (PIDS - 1);
        let mut all = (0..PIDS - 1).map(|at| 1 + (first + at) % (PIDS - 1));
        all.find_map(|pid| self.claim_one(pid).transpose()).transpose()
    }

    fn claim_one(&self, pid: u32) -> io::Result<Option<Claim>> {
        let held = match &self.directory {
            Some(directory) => {
                let name = format!("{directory}/{NAME}{:08x}-{pid}", self.nid);
                let mut how = OpenOptions::new();
                let file: File = how.write(true).create(true).mode(0o600).open(name)?;
                match file.try_lock() {
                    Ok(()) => OwnedFd::from(file),
                    Err(TryLockError::WouldBlock) => return Ok(None),
                    Err(TryLockError::Error(error)) => return Err(error),
                }
            }
            None => {
                let name = format!("petasos-{NAME}{}-{:08x}-{pid}", self.user, self.nid);
                match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
                    Ok(listener) => listener.into(),
                    Err(error) if error.kind() == ErrorKind::AddrInUse => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(Some(Claim { pid, _held: held }))
    }
}

/// A process number of this node, which no other process takes while this lives.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) pid: u32,
    _held: OwnedFd,
}

/// The address by which this host reaches others; nothing is sent for it.
fn outward() -> Ipv4Addr {
    let local = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // An address of documentation, which no host has.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    };
    match local().map(|address| address.ip()) {
        Ok(std::net::IpAddr::V4(ip)) => ip,
        _ => Ipv4Addr::LOCALHOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(secret: bool, alone: bool) -> Place {
        let network =
            Network { first_port: 23_000, secret: Secret::new(vec![7; 32]).unwrap(), alone };
        let network = secret.then_some(network);
        Place { nid: Ipv4Addr::LOCALHOST.to_bits(), user: 1000, network, directory: None }
    }

    fn within(directory: &str, secret: bool) -> Place {
        Place { directory: Some(directory.to_owned()), ..place(secret, false) }
    }

    #[test]
    fn addresses_lead_to_their_processes_and_back() {
        let within = ["/tmp/a-job", &"/d".repeat(LONGEST / 2)].map(|at| within(at, false));
        let all = [place(false, false), place(true, false), place(true, true)];
        for place in all.into_iter().chain(within) {
            let here = ptl_process_t { nid: place.nid, pid: 77 };
            let there = ptl_process_t { nid: place.nid + 1, pid: 77 };
            for id in [here, there] {
                let Some(address) = place.address(2, id) else {
                    assert!(place.network.is_none() && id == there);
                    continue;
                };
                // Of another host the whole address is known when it connects.
                let whole = match (&place.network, address.scheme()) {
                    (Some(network), "auto") if id == there => {
                        let tcp = format!("tcp://{}", Place::socket(network, 2, id));
                        let tcp = Address::parse(&tcp).unwrap();
                        let shm = Address::parse("shm://x").unwrap();
                        AutoAddress::compose(Node::of(b"there"), &[shm, tcp]).unwrap()
                    }
                    _ => address,
                };
                assert_eq!(place.process(2, &whole), Some(id), "{whole}");
                assert_eq!(place.process(1, &whole), None, "{whole}");
            }
            let beyond = ptl_process_t { pid: PIDS, ..here };
            assert_eq!(place.address(0, beyond), None);
            for bad in [
                "shm://portals4-1-x-y-0",
                "shm:///tmp/portals4-7f000001-77-2",
                "tcp://127.0.0.1:80",
                "self://a",
                "auto://h:1",
            ] {
                assert_eq!(place.process(0, &Address::parse(bad).unwrap()), None);
            }
        }
    }

    #[test]
    fn a_number_is_taken_once() {
        let private = tempfile::tempdir().unwrap();
        let directory = private.path().to_str().unwrap();
        for place in [place(false, false), within(directory, false), within(directory, true)] {
            let one = place.claim(None).unwrap().unwrap();
            assert!(place.claim(Some(one.pid)).unwrap().is_none());
            let two = place.claim(None).unwrap().unwrap();
            assert_ne!(one.pid, two.pid);
            let pid = one.pid;
            drop(one);
            assert!(place.claim(Some(pid)).unwrap().is_some());
        }
        assert!(within("/nowhere", false).claim(None).is_err(), "that is not a number in use");
    }

    /// Names that every user can take are those of processes without a job alone.
    #[test]
    fn names_of_a_job_are_in_its_directory() {
        let private = tempfile::tempdir().unwrap();
        let directory = private.path().to_str().unwrap();
        let job = FromJob { directory: Some(directory.to_owned()), ..FromJob::default() };
        let place = Place::find(&job).unwrap();
        let endpoint = place.open(0, 5).unwrap();
        assert!(endpoint.address().as_str().starts_with(&format!("shm://{directory}/")));
        let id = ptl_process_t { nid: place.nid(), pid: 5 };
        assert_eq!(place.process(0, endpoint.address()), Some(id));
        let claim = place.claim(Some(5)).unwrap().unwrap();
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 2, "{claim:?}");
    }
}
