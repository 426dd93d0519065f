//! A connection over TCP for each client.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::super::{LimitError, MESSAGE_BYTES, Plan};
use super::{LOOKING, rate_of};

/// Its name among limits.
pub const BARE_SOCKETS: &str = "tcp_sockets";

/// Connections that the server is told of at a time.
const AT_A_TIME: usize = 64;

/// A message each way.
type Message = [u8; MESSAGE_BYTES];

/// Questions answered in a second, of so many clients together, which share these cores: messages
/// of 64 bytes each way over TCP on the loopback interface, one connection for each client. The
/// server asks the kernel, again and again, which connections have something; a client that has
/// looked for its answer for 50 µs sleeps in the kernel.
///
/// # Errors
///
/// [`LimitError::System`] when the kernel refuses a socket, or one fails.
pub fn tcp_calls_of_many(plan: &Plan, cores: &[usize], clients: usize) -> Result<f64, LimitError> {
    let failed = LimitError::system("connections over TCP within this process");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(&failed)?;
    let pairs = (0..clients).map(|_| pair(&listener)).collect::<io::Result<Vec<_>>>();
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.map_err(&failed)?.into_iter().unzip();
    let answering = LimitError::system("answering messages over TCP");
    let asking = LimitError::system("a message over TCP");
    rate_of(
        plan,
        cores,
        theirs,
        |_| serve(ours, plan.cores.alone()).map_err(answering),
        |stream, number| ask(stream, number).map_err(&asking),
    )
}

/// Both ends of a connection. One that another process makes meanwhile is closed.
fn pair(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let client = TcpStream::connect(listener.local_addr()?)?;
    client.set_nodelay(true)?;
    let expected = client.local_addr()?;
    loop {
        let (server, from) = listener.accept()?;
        if from == expected {
            server.set_nodelay(true)?;
            return Ok((server, client));
        }
    }
}

/// Answers until all have left: their ends are closed then.
fn serve(mut streams: Vec<TcpStream>, shared: bool) -> io::Result<()> {
    let poller: OwnedFd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (at, stream) in streams.iter().enumerate() {
        let data = epoll::EventData::new_u64(at as u64);
        epoll::add(&poller, stream, data, epoll::EventFlags::IN)?;
    }
    let mut left = streams.len();
    let mut ready = Vec::with_capacity(AT_A_TIME);
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    while left > 0 {
        ready.clear();
        match epoll::wait(&poller, spare_capacity(&mut ready), Some(&at_once)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &ready {
            let Some(stream) = streams.get_mut(event.data.u64() as usize) else { continue };
            let mut question: Message = [0; MESSAGE_BYTES];
            // All of a message is there, or comes at once: a client sends it in one piece.
            match stream.read_exact(&mut question) {
                Ok(()) => stream.write_all(&question)?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    epoll::delete(&poller, &*stream)?;
                    left -= 1;
                }
                Err(error) => return Err(error),
            }
        }
        if shared && ready.is_empty() {
            thread::yield_now();
        }
    }
    Ok(())
}

fn ask(stream: &mut TcpStream, number: u32) -> io::Result<()> {
    let mut question: Message = [0; MESSAGE_BYTES];
    question[..4].copy_from_slice(&number.to_le_bytes());
    stream.write_all(&question)?;
    let mut answer: Message = [0; MESSAGE_BYTES];
    let came = look(stream, &mut answer)?;
    stream.read_exact(&mut answer[came..])?;
    match answer == question {
        true => Ok(()),
        false => Err(io::Error::other("another answer came than that to the question")),
    }
}

/// Looks for the answer for a while, without sleep. Returns how much of it came.
fn look(stream: &TcpStream, answer: &mut Message) -> io::Result<usize> {
    let begin = Instant::now();
    loop {
        match recv(stream, &mut answer[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((came, _)) => return Ok(came),
            Err(Errno::AGAIN) if begin.elapsed() >= LOOKING => return Ok(0),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
