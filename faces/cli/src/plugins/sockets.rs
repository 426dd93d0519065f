//! Addresses of ranks, assigned before they start: shared memory where all are on one host, TCP
//! with a secret of the job where they are on more. Each node then keeps a row of ports for its
//! ranks, which no process gets by chance.
//!
//! On one host each rank's socket is a file in the job's private directory. Names without a file
//! belong to the process that takes them first: another user that knows those of a job could keep
//! its ranks from them.

use petasos::{
    Wire,
    fabric::Address,
    wire::{Encoding, from_bytes, to_vec},
};
use petasos_launch::{
    ForRanks, Key, Known, Network, Reserved, Row, SECRET_FILE, ThisNode, inventory::Inventory,
};
use petasos_pmix::{Node, job::JobSpec};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    path::Path,
};

/// Rows of ports that are tried before it is given up.
const TRIES: u32 = 100;
/// The longest path of a socket that the system takes.
const LONGEST_PATH: usize = 107;

/// Where `libpetasos-fi.so` looks for the secret of its job.
const PROVIDER_SECRET: &str = "FI_PETASOS_SECRET_FILE";

/// The network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sockets;

/// Where the ranks of a node will listen.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
struct Ports {
    host: String,
    first: u16,
}

/// What all nodes are told: where the ranks of each will listen; of a job on one host nothing.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
struct Blob {
    nodes: Vec<(u32, Ports)>,
}

impl Network for Sockets {
    fn name(&self) -> &str {
        "sockets"
    }

    fn reserve(&self, here: &ThisNode) -> Result<Reserved, String> {
        if here.alone {
            return Ok(Reserved::new(Vec::new(), ()));
        }
        let address = here.address.ok_or("the way to the other hosts has no address")?;
        let (first, kept) = keep_ports(address, here.ranks).map_err(|error| error.to_string())?;
        let offer = Ports { host: address.to_string(), first };
        Ok(Reserved::new(to_vec(Encoding::Native, &offer), kept))
    }

    /// Those that have the address at which ranks listen.
    fn interfaces(&self, here: &ThisNode, has: &Inventory) -> Vec<String> {
        let Some(address) = here.address.filter(|_| !here.alone && here.ranks > 0) else {
            return Vec::new();
        };
        let is_it = |text: &String| text.parse() == Ok(address);
        let used = has.interfaces.iter().filter(|one| one.addresses.iter().any(is_it));
        used.map(|one| one.name.clone()).collect()
    }

    fn blob(
        &self,
        _: &JobSpec,
        offers: &BTreeMap<Node, Vec<u8>>,
        _: &Known,
    ) -> Result<Vec<u8>, String> {
        let mut nodes = Vec::new();
        for (node, offer) in offers.iter().filter(|(_, offer)| !offer.is_empty()) {
            let wrong = |error| format!("what {node} offers is no row of ports: {error}");
            nodes.push((node.0, from_bytes(Encoding::Native, offer).map_err(wrong)?));
        }
        Ok(to_vec(Encoding::Native, &Blob { nodes }))
    }

    fn set_up(
        &self,
        job: &JobSpec,
        blob: &[u8],
        key: &Key,
        directory: &Path,
    ) -> Result<ForRanks, String> {
        let blob: Blob = from_bytes(Encoding::Native, blob).map_err(|error| error.to_string())?;
        let mut rows = vec![Row::default(); job.nodes.len()];
        if blob.nodes.is_empty() {
            let base = base_in(directory, job.runs.iter().map(|run| u64::from(run.count)).sum());
            // A directory whose path makes no address. (Others could take these names.)
            let base = base.unwrap_or_else(|| format!("shm://petasos-{}-", job.name));
            rows.fill(Row { base, first: 0 });
        }
        for (node, Ports { host, first }) in blob.nodes {
            let row = rows.get_mut(node as usize).ok_or("a node that is none of the job")?;
            let host: IpAddr = host.parse().map_err(|_| format!("`{host}` is no address"))?;
            let base = match host {
                IpAddr::V4(host) => format!("tcp://{host}:"),
                IpAddr::V6(host) => format!("tcp://[{host}]:"),
            };
            *row = Row { base, first };
        }
        let hex: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut ranks = ForRanks::default();
        (ranks.rows, ranks.secret) = (rows, Some(hex.into_bytes()));
        // Programs of libfabric: those of an MPI on the provider.
        let file = directory.join(SECRET_FILE);
        let file = file.to_str().map(|file| (PROVIDER_SECRET.to_owned(), file.to_owned()));
        ranks.environment.extend(file);
        Ok(ranks)
    }
}

/// How the addresses of so many ranks begin whose sockets are in this directory; none if one of
/// them would be no address, or too long for a socket.
fn base_in(directory: &Path, ranks: u64) -> Option<String> {
    let base = format!("shm://{}/rank-", directory.to_str()?);
    let longest = format!("{base}{}", ranks.saturating_sub(1));
    let address = Address::parse(&longest).ok()?;
    (directory.is_absolute() && address.rest().len() <= LONGEST_PATH).then_some(base)
}

/// Keeps ports that follow each other for processes of this node: no process gets them by chance,
/// and one that asks for one of them by number does.
fn keep_ports(host: IpAddr, count: u32) -> io::Result<(u16, Vec<OwnedFd>)> {
    let take = |port: u16| -> io::Result<OwnedFd> {
        let address = SocketAddr::from((host, port));
        let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)?;
        Ok(socket)
    };
    for _ in 0..TRIES {
        let mut kept = vec![take(0)?];
        let first = SocketAddr::try_from(getsockname(&kept[0])?)?.port();
        for next in 1..count {
            match u16::try_from(u32::from(first) + next).map(take) {
                Ok(Ok(socket)) => kept.push(socket),
                _ => break,
            }
        }
        if kept.len() == count.max(1) as usize {
            return Ok((first, kept));
        }
    }
    Err(io::Error::other(format!("there are no {count} free ports in a row at {host}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_pmix::{
        JobId,
        job::{NodeInfo, Run},
    };
    use std::net::{Ipv4Addr, TcpListener};

    const KEY: Key = Key([0xab; 32]);

    fn set_up(job: &JobSpec, blob: &[u8]) -> Result<ForRanks, String> {
        Sockets.set_up(job, blob, &KEY, Path::new("/run/of-test.1"))
    }

    fn job(counts: &[u32]) -> JobSpec {
        let node =
            |name: usize| NodeInfo { name: format!("n{name}"), base: String::new(), first: 0 };
        let runs = counts.iter().zip(0..).map(|(count, at)| Run { node: Node(at), count: *count });
        JobSpec {
            id: JobId(0),
            name: "of-test".to_owned(),
            nodes: (0..counts.len()).map(node).collect(),
            runs: runs.collect(),
            info: Vec::new(),
        }
    }

    #[test]
    fn on_one_host_sockets_are_in_the_directory_of_the_job() {
        let job = job(&[0, 3]);
        let here = ThisNode { address: None, ranks: 3, alone: true };
        let offer = Sockets.reserve(&here).unwrap().offer;
        let blob = Sockets.blob(&job, &[(Node(1), offer)].into(), &Known::default()).unwrap();
        let ranks = set_up(&job, &blob).unwrap();
        assert_eq!(ranks.rows[1], Row { base: "shm:///run/of-test.1/rank-".to_owned(), first: 0 });
        assert_eq!(ranks.secret.unwrap(), "ab".repeat(32).into_bytes());
        let variable = ("FI_PETASOS_SECRET_FILE".to_owned(), "/run/of-test.1/secret".to_owned());
        assert_eq!(ranks.environment, [variable]);
    }

    #[test]
    fn a_path_that_makes_no_address_is_not_taken() {
        let is = |path: &str, ranks| base_in(Path::new(path), ranks).is_some();
        let long = |len| format!("/{}", "d".repeat(len - 1_usize));
        assert!(is("/run/x", 1) && is("/run/x", 0) && !is("/run/a b", 1) && !is("run", 1));
        // `/rank-` and the largest number.
        assert!(is(&long(100), 10) && !is(&long(100), 11) && is(&long(99), 100));
    }

    #[test]
    fn on_several_each_node_keeps_a_row_of_ports() {
        let job = job(&[2, 0, 5]);
        let reserve = |ranks| {
            let address = Some(Ipv4Addr::LOCALHOST.into());
            Sockets.reserve(&ThisNode { address, ranks, alone: false }).unwrap()
        };
        let (a, c) = (reserve(2), reserve(5));
        let offers = [(Node(0), a.offer.clone()), (Node(2), c.offer.clone())];
        let blob = Sockets.blob(&job, &offers.into(), &Known::default()).unwrap();
        let ranks = set_up(&job, &blob).unwrap();
        let [first, none, last] = &ranks.rows[..] else { panic!("{ranks:?}") };
        assert_eq!(*none, Row::default());
        assert_eq!(
            (first.base.as_str(), last.base.as_str()),
            ("tcp://127.0.0.1:", "tcp://127.0.0.1:")
        );
        // No process is given one of them by chance, and one that asks for it by its number is.
        let given =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let kept = |row: &Row, count| (row.first..row.first + count).contains(&given);
        assert!(!kept(first, 2) && !kept(last, 5), "{given}");
        TcpListener::bind((Ipv4Addr::LOCALHOST, last.first + 4)).unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let job = job(&[1, 1]);
        let nonsense = [(Node(0), vec![0xff; 9])].into();
        assert!(Sockets.blob(&job, &nonsense, &Known::default()).is_err());
        let blob = |node, host: &str| {
            let ports = Ports { host: host.to_owned(), first: 7 };
            set_up(&job, &to_vec(Encoding::Native, &Blob { nodes: vec![(node, ports)] }))
        };
        assert!(blob(1, "::1").unwrap().rows[1].base == "tcp://[::1]:");
        assert!(blob(2, "::1").is_err());
        assert!(blob(0, "somewhere/else").is_err());
        assert!(set_up(&job, &[0xff; 5]).is_err());
    }
}
