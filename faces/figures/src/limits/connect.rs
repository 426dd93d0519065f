//! A new connection and the first bytes over it, between two processes.
//!
//! What a new peer costs at best: over TCP a connection and three messages there and back, for a
//! peer that proves its identity before it asks needs no more; over a Unix socket, by which
//! descriptors of shared memory travel, a connection and the word that it was accepted.

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use super::helper::Helper;
use super::order::{Family, Request, Waiting};
use super::report::Once;
use super::tcp::{receive, send, spinning};
use super::{LimitError, MESSAGE_BYTES, Plan, timing};

/// Messages there and back over a new connection of TCP.
const ROUND_TRIPS: usize = 3;

/// Connections that are not counted: caches and the helper are cold.
const COLD: u64 = 5;

/// New connections in one measurement, at most: each leaves a port behind for a minute.
pub(super) const MOST: u64 = 400;

/// How long the other side has to put an old connection away before the next one comes.
const SETTLE: Duration = Duration::from_micros(200);

/// New connections, one after the other.
///
/// To be called on a thread that outlives the measurement; see [`super::tcp_echo`].
///
/// # Errors
///
/// [`LimitError::System`] where sockets cannot be had, [`LimitError::Helper`] when the other
/// process fails.
pub fn new_connections(plan: &Plan, family: Family, waiting: Waiting) -> Result<Once, LimitError> {
    let mut helper = Helper::start(plan, Request::Connect { family, waiting })?;
    let place = helper.number("place")?;
    let failed = LimitError::system("a new connection to a helper process");
    let alone = plan.cores.alone();
    let name = match family {
        Family::Tcp => "tcp_connect_and_three_round_trips",
        Family::Unix => "unix_connect_and_accept",
    };
    once(plan, name, || match family {
        Family::Tcp => over_tcp(place as u16, waiting, alone).map_err(&failed),
        Family::Unix => over_unix(place, waiting, alone).map_err(&failed),
    })
}

/// Times what each call of `one` says that it took, until the plan's time is over.
pub fn once<E>(
    plan: &Plan,
    name: &'static str,
    mut one: impl FnMut() -> Result<Duration, E>,
) -> Result<Once, E> {
    let (mut times, begin) = (timing::single_times(), Instant::now());
    let mut cold = COLD;
    while cold > 0 || times.len() < 5 || (begin.elapsed() < plan.time && times.len() < MOST) {
        let took = one()?;
        match cold.checked_sub(1) {
            Some(less) => cold = less,
            None => times.saturating_record((took.as_nanos() as u64).max(1)),
        }
        let over = Instant::now();
        while over.elapsed() < SETTLE {
            std::hint::spin_loop();
        }
    }
    Ok(Once::of(name, &times))
}

fn over_tcp(port: u16, waiting: Waiting, alone: bool) -> io::Result<Duration> {
    let (message, mut answer) = ([7; MESSAGE_BYTES], [0; MESSAGE_BYTES]);
    let start = Instant::now();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(waiting == Waiting::Spinning)?;
    for _ in 0..ROUND_TRIPS {
        send(&mut stream, &message, alone)?;
        receive(&mut stream, &mut answer, alone)?;
    }
    Ok(start.elapsed())
}

fn over_unix(place: usize, waiting: Waiting, alone: bool) -> io::Result<Duration> {
    let address = SocketAddr::from_abstract_name(name_of(place))?;
    let mut word = [0];
    let start = Instant::now();
    let mut stream = UnixStream::connect_addr(&address)?;
    stream.set_nonblocking(waiting == Waiting::Spinning)?;
    match spinning(alone, || stream.read(&mut word))? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(start.elapsed()),
    }
}

fn name_of(process: usize) -> String {
    format!("petasos-limits-{process}")
}

/// The helper's side, until it is ended.
pub(super) fn serve(
    parent: &mut BufReader<UnixStream>,
    family: Family,
    waiting: Waiting,
    alone: bool,
) -> io::Result<()> {
    let spins = waiting == Waiting::Spinning;
    match family {
        Family::Tcp => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(spins)?;
            writeln!(parent.get_mut(), "place {}", listener.local_addr()?.port())?;
            loop {
                let mut stream = spinning(alone, || Ok(listener.accept()?.0))?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(spins)?;
                let mut message = [0; MESSAGE_BYTES];
                // Whatever ends one connection, the next one comes.
                while receive(&mut stream, &mut message, alone).is_ok() {
                    if send(&mut stream, &message, alone).is_err() {
                        break;
                    }
                }
            }
        }
        Family::Unix => {
            let own = std::process::id() as usize;
            let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name_of(own))?)?;
            listener.set_nonblocking(spins)?;
            writeln!(parent.get_mut(), "place {own}")?;
            loop {
                let mut stream = spinning(alone, || Ok(listener.accept()?.0))?;
                // It may have gone already.
                let _ = stream.write_all(&[1]);
            }
        }
    }
}
