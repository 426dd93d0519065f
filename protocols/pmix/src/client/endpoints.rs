//! The addresses of the ranks' endpoints, and the secret of the job, where another launcher started
//! the job and did not assign them. On several hosts each rank reserves a port and puts its address
//! on its business card; rank 0 makes the secret. On one host each rank makes a random name for
//! shared memory: another user could take a name derived from the job's before the rank listens
//! there. A process that can read the business cards of that launcher can read all of this.

use super::{GetOptions, Job, JobError, lock, read};
use crate::{
    Error, Scope, Value,
    random::{hex, random},
};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Mutex,
};

/// The commits of each rank of such a job that have its address, and nothing of its program's.
pub(super) const ENDPOINT_COMMITS: u64 = 1;

const ADDRESS: &str = "petasos.address";
const SECRET: &str = "petasos.secret";

/// The source of the addresses.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    /// The private directory of a job of ours.
    directory: Option<PathBuf>,
    /// The port of this rank, reserved until it listens there.
    reserved: Mutex<Option<OwnedFd>>,
}

impl Endpoints {
    /// Assigned by `petasos run`, whose directory this is.
    pub(super) fn assigned(directory: PathBuf) -> Endpoints {
        Endpoints { directory: Some(directory), reserved: Mutex::default() }
    }

    fn is_exchanged(job: &Job) -> bool {
        job.server.is_foreign()
    }

    fn is_on_one_host(job: &Job) -> bool {
        job.data.facts().host_count() < 2
    }

    /// Tells the others the address of this rank, if it was not assigned.
    pub(super) fn exchange(job: &Job) -> Result<(), JobError> {
        if !Endpoints::is_exchanged(job) {
            return Ok(());
        }
        if Endpoints::is_on_one_host(job) {
            job.put(Scope::Global, ADDRESS, format!("shm://petasos-{}", hex(&random()[..16])));
        } else {
            let reserved = own_host(job).and_then(reserve_port);
            let (address, reserved) =
                reserved.map_err(|e| JobError::Io("a port for this rank".into(), e))?;
            *lock(&job.endpoints.reserved) = Some(reserved);
            job.put(Scope::Global, ADDRESS, format!("tcp://{address}"));
            if job.rank() == 0 {
                job.put(Scope::Global, SECRET, hex(&random()));
            }
        }
        job.commit()?;
        match &*job.server {
            super::server::Server::Pmi1(_) => job.fence(),
            _ => Ok(()),
        }
    }

    /// The address of a rank; `None` if it was assigned.
    pub(super) fn of(&self, job: &Job, rank: u32) -> Result<Option<String>, JobError> {
        if !Endpoints::is_exchanged(job) {
            return Ok(None);
        }
        text(job, rank, ADDRESS).map(Some)
    }

    pub(super) fn secret(&self, job: &Job) -> Result<Option<Vec<u8>>, JobError> {
        match &self.directory {
            Some(directory) => match read(&directory.join("secret")) {
                Ok(secret) => Ok(Some(secret.trim_ascii().to_vec())),
                Err(JobError::Io(_, error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
            None if !Endpoints::is_exchanged(job) || Endpoints::is_on_one_host(job) => Ok(None),
            None => Ok(Some(text(job, 0, SECRET)?.into_bytes())),
        }
    }
}

fn text(job: &Job, rank: u32, key: &str) -> Result<String, JobError> {
    // It waits for the key whatever else the rank has committed by then.
    match job.get_with(rank, key, GetOptions { wait: true, ..GetOptions::default() })? {
        Value::Text(text) => Ok(text),
        other => {
            let why = format!("`{key}` of rank {rank} is {other}, not text");
            Err(JobError::Refused(Error::Misuse(why)))
        }
    }
}

/// The address at which other hosts reach this one: that of its interface towards another host.
fn own_host(job: &Job) -> io::Result<IpAddr> {
    let map = job.map();
    let others = map.hosts().iter().filter(|node| **node != job.node);
    let names = others.filter_map(|node| map.node(*node)).map(|node| node.name.as_str());
    let towards = |name: &str| {
        let there = (name, 9).to_socket_addrs().ok()?.find(|a| !a.ip().is_loopback())?;
        let any: IpAddr = match there {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        // Nothing is sent: the system only chooses the interface.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(there).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    if let Some(found) = names.take(8).find_map(towards) {
        return Ok(found);
    }
    // The names of other hosts are not known here: use the name that the launcher has for this
    // host, or the first interface that is not the loopback.
    let named = std::env::var("MPIR_CVAR_CH3_INTERFACE_HOSTNAME").ok();
    let named = named.and_then(|name| (name, 0).to_socket_addrs().ok());
    let named =
        named.and_then(|mut all| all.find_map(|a| Some(a.ip()).filter(|ip| !ip.is_loopback())));
    let first = || {
        let all = nix::ifaddrs::getifaddrs().ok()?;
        let address = |one: nix::ifaddrs::InterfaceAddress| {
            Some(IpAddr::from(one.address?.as_sockaddr_in()?.ip())).filter(|ip| !ip.is_loopback())
        };
        all.into_iter().find_map(address)
    };
    let none = || io::Error::other("this host has no address by which others reach it");
    named.or_else(first).ok_or_else(none)
}

/// Reserves a free port. The system gives it to no other process that asks for any port, only to
/// one that asks for this number.
fn reserve_port(host: IpAddr) -> io::Result<(SocketAddr, OwnedFd)> {
    let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((host, 0)))?;
    Ok((SocketAddr::try_from(getsockname(&socket)?)?, socket))
}
