//! Small messages over TCP on the loopback interface, between two processes.

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use super::helper::{Helper, hear};
use super::order::{Request, Waiting};
use super::report::RoundTrip;
use super::{LimitError, MESSAGE_BYTES, Plan, on_client_core, timing};

pub(super) const SPINNING: &str = "tcp_spinning";
pub(super) const SLEEPING: &str = "tcp_sleeping";

/// A message of 64 bytes over TCP to a child process and back, with `TCP_NODELAY`.
///
/// # Errors
///
/// As [`tcp_echo`].
pub fn tcp_round_trip(plan: &Plan, waiting: Waiting) -> Result<RoundTrip, LimitError> {
    tcp_echo(plan, waiting, MESSAGE_BYTES)
}

/// A message of so many bytes over TCP to a child process and back, with `TCP_NODELAY`.
///
/// # Errors
///
/// [`LimitError::System`] where sockets cannot be had, [`LimitError::Helper`] when the other
/// process fails, [`LimitError::EmptySize`] for a size of 0.
pub fn tcp_echo(plan: &Plan, waiting: Waiting, bytes: usize) -> Result<RoundTrip, LimitError> {
    if bytes == 0 {
        return Err(LimitError::EmptySize);
    }
    let (name, reads) = match waiting {
        Waiting::Spinning => (SPINNING, "reads that do not block"),
        Waiting::Sleeping => (SLEEPING, "reads that block"),
    };
    let how = format!(
        "{bytes} bytes over TCP on 127.0.0.1, no delay, {reads}; {}",
        plan.cores.describe("processes")
    );
    on_client_core(plan, || {
        let mut helper = Helper::start(plan, Request::Echo { waiting, bytes })?;
        let mut stream = connect(&mut helper)?;
        let failed = LimitError::system("a message over TCP");
        stream.set_nonblocking(waiting == Waiting::Spinning).map_err(&failed)?;
        let (mut message, mut answer) = (vec![0_u8; bytes], vec![0; bytes]);
        timing::round_trips(plan, name, &how, || {
            message[0] = message[0].wrapping_add(1);
            send(&mut stream, &message, plan.cores.alone()).map_err(&failed)?;
            receive(&mut stream, &mut answer, plan.cores.alone()).map_err(&failed)?;
            if answer != message {
                return Err(LimitError::Corrupt { name, offset: 0, bytes });
            }
            Ok(())
        })
    })
}

/// The helper's side of [`tcp_echo`].
pub(super) fn serve(
    parent: &mut BufReader<UnixStream>,
    waiting: Waiting,
    bytes: usize,
    alone: bool,
) -> io::Result<()> {
    let mut stream = accept(parent)?;
    stream.set_nonblocking(waiting == Waiting::Spinning)?;
    let mut message = vec![0; bytes];
    loop {
        match receive(&mut stream, &mut message, alone) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            received => received?,
        }
        send(&mut stream, &message, alone)?;
    }
}

/// Connects to a helper that listens.
pub(super) fn connect(helper: &mut Helper) -> Result<TcpStream, LimitError> {
    let port = helper.number("port")?;
    let port =
        u16::try_from(port).map_err(|_| helper.failed(format!("{port} is no port number")))?;
    let failed = LimitError::system("connecting to a helper process over TCP");
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(&failed)?;
    stream.set_nodelay(true).map_err(&failed)?;
    let local = stream.local_addr().map_err(&failed)?;
    helper.say(&local.to_string())?;
    Ok(stream)
}

/// Listens for the parent and takes its connection.
///
/// The parent says over the private socket which address it comes from: other processes that find
/// the port are sent away.
pub(super) fn accept(parent: &mut BufReader<UnixStream>) -> io::Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    writeln!(parent.get_mut(), "port {}", listener.local_addr()?.port())?;
    let expected: SocketAddr = hear(parent)?.trim_end().parse().map_err(io::Error::other)?;
    loop {
        let (stream, from) = listener.accept()?;
        if from == expected {
            stream.set_nodelay(true)?;
            return Ok(stream);
        }
    }
}

/// Writes all of `message`, spinning where the stream does not block and has no room.
pub(super) fn send(stream: &mut TcpStream, message: &[u8], alone: bool) -> io::Result<()> {
    let mut done = 0;
    while done < message.len() {
        done += spinning(alone, || stream.write(&message[done..]))?;
    }
    Ok(())
}

/// Fills `into`, spinning where the stream does not block and has nothing.
pub(super) fn receive(stream: &mut TcpStream, into: &mut [u8], alone: bool) -> io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        match spinning(alone, || stream.read(&mut into[done..]))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => done += read,
        }
    }
    Ok(())
}

/// Tries until something moves or fails; `alone`: others need the core meanwhile.
pub(super) fn spinning<T>(alone: bool, mut once: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match once() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if alone {
                    thread::yield_now();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            moved => return moved,
        }
    }
}
