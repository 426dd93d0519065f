//! What runs in the helper process of a measurement.

use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::buffer::Buffer;
use super::helper::hear;
use super::order::{Order, Request};
use super::{connect, pin, stream, tcp};

/// What a helper process does: reads an order from its standard input and carries it out.
///
/// # Errors
///
/// When standard input is not the socket that a measurement hands over, and when the order cannot
/// be carried out; the latter has also been told to the parent.
pub fn run_helper() -> io::Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut parent = BufReader::new(UnixStream::from(input));
    // Fails for what is not a Unix socket: a user has typed the hidden subcommand.
    parent.get_ref().peer_addr().map_err(|_| {
        io::Error::other("this subcommand is for petasos itself, which talks to it over a socket")
    })?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Dead before the line above took effect: the process that adopted this one sends no signal.
    if getppid().is_none() {
        return Ok(());
    }
    let outcome = obey(&mut parent);
    if let Err(error) = &outcome {
        // That the parent has gone is no further failure.
        let _ = writeln!(parent.get_mut(), "failed: {error}");
    }
    outcome
}

fn obey(parent: &mut BufReader<UnixStream>) -> io::Result<()> {
    let order: Order = hear(parent)?.parse()?;
    pin(order.core);
    match order.request {
        Request::Memory { bytes } => {
            let memory = Buffer::pattern(bytes).map_err(io::Error::other)?;
            writeln!(parent.get_mut(), "address {}", memory.as_ptr() as usize)?;
            wait_for_end(parent)
        }
        Request::Echo { waiting, bytes } => tcp::serve(parent, waiting, bytes, order.alone),
        Request::Stream { bytes } => stream::serve(parent, bytes),
        Request::Connect { family, waiting } => {
            connect::serve(parent, family, waiting, order.alone)
        }
    }
}

fn wait_for_end(parent: &mut BufReader<UnixStream>) -> io::Result<()> {
    while !hear(parent)?.is_empty() {}
    Ok(())
}
