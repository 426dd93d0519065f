//! Where the ranks' endpoints are, and the secret of the job, where they were not assigned before
//! the start: a job of another launcher. On several hosts each rank keeps a port and says on its
//! business card where that is; rank 0 makes the secret. On one host each rank makes up a name for
//! shared memory: one that followed from the job's could be taken by another user before the rank
//! listens there. A process that can read the business cards of that launcher can read all that.

use super::{GetOptions, Job, JobError, read};
use crate::{
    Error, Scope, Value,
    net::handshake::{hex, random},
};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

/// The commits of each rank of such a job that say where it is, and nothing of its program's.
pub(super) const OF_PLACES: u64 = 1;

const ADDRESS: &str = "petasos.address";
const SECRET: &str = "petasos.secret";

/// How the addresses came about.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The private directory of a job of ours.
    directory: Option<PathBuf>,
    /// The port of this rank, kept until it listens there.
    kept: Mutex<Option<OwnedFd>>,
}

impl Places {
    /// By `petasos run`, whose directory this is.
    pub(super) fn assigned(directory: PathBuf) -> Places {
        Places { directory: Some(directory), kept: Mutex::default() }
    }

    fn is_exchanged(job: &Job) -> bool {
        job.link.is_foreign()
    }

    fn is_on_one_host(job: &Job) -> bool {
        job.known.facts().host_count() < 2
    }

    /// Tells the others where this rank will be, if they cannot know.
    pub(super) fn exchange(job: &Job) -> Result<(), JobError> {
        if !Places::is_exchanged(job) {
            return Ok(());
        }
        if Places::is_on_one_host(job) {
            job.put(Scope::Global, ADDRESS, format!("shm://petasos-{}", hex(&random()[..16])));
        } else {
            let kept = own_host(job).and_then(keep_port);
            let (address, kept) =
                kept.map_err(|e| JobError::Io("a port for this rank".into(), e))?;
            *job.places.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
            job.put(Scope::Global, ADDRESS, format!("tcp://{address}"));
            if job.rank() == 0 {
                job.put(Scope::Global, SECRET, hex(&random()));
            }
        }
        job.commit()?;
        match &*job.link {
            super::server::Server::Pmi1(_) => job.fence(),
            _ => Ok(()),
        }
    }

    /// The address of a rank; nothing if it follows from what all ranks know.
    pub(super) fn of(&self, job: &Job, rank: u32) -> Result<Option<String>, JobError> {
        if !Places::is_exchanged(job) {
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
            None if !Places::is_exchanged(job) || Places::is_on_one_host(job) => Ok(None),
            None => Ok(Some(text(job, 0, SECRET)?.into_bytes())),
        }
    }
}

fn text(job: &Job, rank: u32, key: &str) -> Result<String, JobError> {
    // What its program has committed by then does not matter.
    match job.get_with(rank, key, GetOptions { wait: true, ..GetOptions::default() })? {
        Value::Text(text) => Ok(text),
        other => {
            let why = format!("`{key}` of rank {rank} is {other}, not text");
            Err(JobError::Refused(Error::Misuse(why)))
        }
    }
}

/// The address of this host by which the others reach it: what its interface towards another host
/// is.
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
        // Nothing is sent: the system only says over which interface it would go.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(there).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    if let Some(found) = names.take(8).find_map(towards) {
        return Ok(found);
    }
    // The others have no names that are known here: what this host is called by its launcher, or
    // the first interface that is not for itself.
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

/// A free port there. It is given to no process by chance, only to one that asks for it by its
/// number.
fn keep_port(host: IpAddr) -> io::Result<(SocketAddr, OwnedFd)> {
    let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((host, 0)))?;
    Ok((SocketAddr::try_from(getsockname(&socket)?)?, socket))
}
