//! Samples the node whenever the kernel reports a change. Its messages about the network, and about
//! devices, processors and memory, only cause a new sample, which is compared with the last one. So
//! nothing in them has to be trusted. A change that the kernel does not report is in no event.
//!
//! A thread of its own does this, since some drivers are slow to report the speed of a link.

use super::Inventory;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind,
        netlink::{self, SocketAddrNetlink},
        recv, socket_with,
    },
};
use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    thread,
    time::{Duration, Instant},
};

/// One change brings several messages: they have settled after this time.
const SETTLES: Duration = Duration::from_millis(100);
/// The least time between two samples.
const APART: Duration = Duration::from_secs(1);
/// The netlink groups of links, of IPv4 and of IPv6 addresses.
const NETWORK: u32 = 0x1 | 0x10 | 0x100;
/// The kernel's own messages about devices.
const DEVICES: u32 = 1;
/// The subsystems of devices that matter.
const SUBSYSTEMS: [&[u8]; 7] =
    [b"cpu", b"memory", b"node", b"pci", b"drm", b"accel", b"infiniband"];

/// Ends the thread when it is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    _leash: UnixStream,
}

impl Watcher {
    /// Samples now, and whenever something may have changed, and reports what is new.
    pub(crate) fn start(tell: impl Fn(Inventory) + Send + 'static) -> io::Result<Watcher> {
        let (ours, theirs) = UnixStream::pair()?;
        let run = move || {
            // The sockets are opened before the sample, so that nothing is missed between the two.
            let bells = bells();
            let mut last = Inventory::sample();
            tell(last.clone());
            while wait(&bells, &theirs) {
                let now = Inventory::sample();
                if now != last {
                    tell(now.clone());
                    last = now;
                }
            }
        };
        thread::Builder::new().name("inventory".to_owned()).spawn(run)?;
        Ok(Watcher { _leash: ours })
    }
}

/// A socket for the kernel's messages to these groups.
fn listen(protocol: Option<Protocol>, groups: u32) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// The sockets for changes of the network and of devices, as far as the system allows this process
/// to open them.
fn bells() -> [Option<OwnedFd>; 2] {
    [listen(None, NETWORK).ok(), listen(Some(netlink::KOBJECT_UEVENT), DEVICES).ok()]
}

/// Waits until something may have changed, and has settled. False: the watch has ended.
fn wait(bells: &[Option<OwnedFd>; 2], leash: &UnixStream) -> bool {
    let begin = Instant::now();
    while !rung(bells) {
        if is_over(bells, leash, None) {
            return false;
        }
    }
    let settled = (begin + APART).max(Instant::now() + SETTLES);
    loop {
        let left = settled.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // All of it is in the next sample.
            rung(bells);
            return true;
        }
        if is_over(&[None, None], leash, Some(left)) {
            return false;
        }
    }
}

/// Sleeps until a message comes, at most so long. Says whether the watch has ended.
fn is_over(bells: &[Option<OwnedFd>; 2], leash: &UnixStream, most: Option<Duration>) -> bool {
    let most = most.map(|most| Timespec {
        tv_sec: most.as_secs() as i64,
        tv_nsec: i64::from(most.subsec_nanos()),
    });
    let mut fds = vec![PollFd::new(leash, PollFlags::IN)];
    fds.extend(bells.iter().flatten().map(|bell| PollFd::new(bell, PollFlags::IN)));
    match poll(&mut fds, most.as_ref()) {
        Ok(_) => !fds[0].revents().is_empty(),
        Err(error) => error != Errno::INTR,
    }
}

/// Whether a message came since the last call.
fn rung([network, devices]: &[Option<OwnedFd>; 2]) -> bool {
    let any = |bell: &Option<OwnedFd>, matters: fn(&[u8]) -> bool| {
        bell.as_ref().is_some_and(|bell| drain(bell, matters))
    };
    // Both are emptied.
    any(network, |_| true) | any(devices, concerns)
}

/// Empties a socket. Says whether a message that matters was there.
fn drain(bell: &OwnedFd, matters: impl Fn(&[u8]) -> bool) -> bool {
    let (mut message, mut found) = ([0; 8192], false);
    loop {
        match recv(bell, &mut message[..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => found |= matters(&message[..len]),
            Err(Errno::INTR) => {}
            // The socket overflowed, and messages were dropped.
            Err(Errno::NOBUFS) => found = true,
            Err(_) => return found,
        }
    }
}

/// Whether a message about a device, words with zeroes between them, is about one that is sampled.
fn concerns(message: &[u8]) -> bool {
    let mut words = message.split(|byte| *byte == 0);
    words.any(|word| {
        word.strip_prefix(b"SUBSYSTEM=").is_some_and(|which| SUBSYSTEMS.contains(&which))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel};

    #[test]
    fn devices_that_are_not_sampled_do_not_ring() {
        let message = |subsystem: &str| {
            format!("offline@/devices/x\0ACTION=offline\0SUBSYSTEM={subsystem}\0SEQNUM=4\0")
        };
        assert!(concerns(message("cpu").as_bytes()) && concerns(message("memory").as_bytes()));
        assert!(!concerns(message("block").as_bytes()) && !concerns(message("cpuidle").as_bytes()));
        assert!(!concerns(b"") && !concerns(b"SUBSYSTEM"));
    }

    #[test]
    fn the_first_sample_comes_at_once_and_the_thread_ends_with_its_owner() {
        let (sender, receiver) = channel();
        let watcher = Watcher::start(move |found| drop(sender.send(found))).unwrap();
        let found = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(!found.cpus.is_empty());
        drop(watcher);
        // Its end of the channel is dropped with the thread. The machine may have changed
        // meanwhile.
        while receiver.recv_timeout(Duration::from_secs(30)).is_ok() {}
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    }
}
