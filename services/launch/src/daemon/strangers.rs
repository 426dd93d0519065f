//! Connections of which it is not known yet whether another daemon has made them.
//!
//! A process that reaches the port can hold as many open as it likes, say nothing, and connect
//! again when one is closed. So each costs a descriptor and some bytes, none is waited for, and
//! where there are too many the oldest of the host that has most of them is closed for the next
//! one: a daemon takes a moment for its part, and stays no longer than that. That moment
//! ([`GRACE`]) each of them has, however many come: until the oldest has had it the next ones wait
//! in the kernel's queue. Which host is meant says the address, of which a stranger cannot choose
//! any (of IPv6 the network counts, and all addresses of the loopback interface are one). A daemon
//! whose connection was closed all the same dials again.
//!
//! They lie in a set of the kernel's of their own: what they say is looked at beside everything
//! else, and never before it.

use crate::handshake::{Answering, MESSAGE, Secret};
use petasos_fabric::{Time, acceptor::unauthenticated_limit};
use petasos_noise::ResponderAddress;
use petasos_pmix::{Node, server::random};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use std::{
    collections::{BTreeMap, HashMap},
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// How many there are at a time, at most; no more than an eighth of all descriptors.
const MOST: usize = 1024;
/// How long each has at least before it is closed for another one: what a daemon needs, and more on
/// a busy machine.
const GRACE: Duration = Duration::from_millis(200);
/// What is taken from the set at a time; the rest comes the next time.
const BATCH: usize = 64;
/// Lines about those that were closed, at most.
const MOST_TOLD: u32 = 10;
/// How long a daemon may take for its part.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that was taken.
#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    host: IpAddr,
    from: SocketAddr,
    since: Time,
    answering: Answering,
    message: [u8; MESSAGE],
    got: usize,
}

/// What came of listening to one.
#[derive(Debug)]
enum Heard {
    /// Not all that it has to say.
    Part,
    /// It closed the connection: it may have asked whether this machine is there.
    Gone,
    /// Why it is no daemon of this job.
    Refused(String),
    /// It is the daemon of a node.
    Daemon(Node, TcpStream),
}

/// All of them, the oldest first.
#[derive(Debug)]
pub(crate) struct Strangers {
    all: BTreeMap<u64, Stranger>,
    /// How many a host has.
    of: HashMap<IpAddr, usize>,
    next: u64,
    most: usize,
    set: OwnedFd,
    told: u32,
    /// It was said that there are too many of them.
    told_of_many: bool,
}

impl Strangers {
    /// At most so many as this process may have descriptors for.
    pub(crate) fn new() -> io::Result<Strangers> {
        Strangers::at_most(unauthenticated_limit(MOST))
    }

    fn at_most(most: usize) -> io::Result<Strangers> {
        Ok(Strangers {
            all: BTreeMap::new(),
            of: HashMap::new(),
            next: 0,
            most,
            set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            told: 0,
            told_of_many: false,
        })
    }

    /// Whether another connection may be taken.
    pub(crate) fn have_room(&self, now: Time) -> bool {
        self.full_until() <= now
    }

    /// When the one that is closed for the next one has had its time.
    fn full_until(&self) -> Time {
        match self.all.len() < self.most {
            true => Time::ZERO,
            false => self.next_to_go().map_or(Time::ZERO, |(_, oldest)| oldest.since.after(GRACE)),
        }
    }

    /// Begins a handshake; gives what is to be said of it.
    ///
    /// # Errors
    /// If it cannot be begun: the connection is closed.
    pub(crate) fn greet(
        &mut self,
        stream: TcpStream,
        from: SocketAddr,
        now: Time,
    ) -> io::Result<Option<String>> {
        stream.set_nonblocking(true)?;
        let answering = Answering::begin(&random());
        say(&stream, answering.first())?;
        let data = epoll::EventData::new_u64(self.next + 1);
        epoll::add(&self.set, &stream, data, epoll::EventFlags::IN)?;
        let crowded = self.all.len() >= self.most;
        if let Some(number) = self.next_to_go().filter(|_| crowded).map(|(number, _)| number) {
            self.remove(number);
        }
        let host = host(from.ip());
        *self.of.entry(host).or_default() += 1;
        self.next += 1;
        let (message, got) = ([0; MESSAGE], 0);
        let stranger = Stranger { stream, host, from, since: now, answering, message, got };
        self.all.insert(self.next, stranger);
        let tells = crowded && !std::mem::replace(&mut self.told_of_many, true);
        Ok(tells.then(|| {
            let from = from.ip().to_canonical();
            format!("too many connections do not identify themselves, the last one from {from}")
        }))
    }

    /// The oldest of the host that has most.
    fn next_to_go(&self) -> Option<(u64, &Stranger)> {
        let (most, _) = self.of.iter().max_by_key(|(_, count)| **count)?;
        let oldest = self.all.iter().find(|(_, stranger)| stranger.host == *most);
        oldest.map(|(number, stranger)| (*number, stranger))
    }

    fn remove(&mut self, number: u64) -> Option<Stranger> {
        let stranger = self.all.remove(&number)?;
        if let Some(count) = self.of.get_mut(&stranger.host) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&stranger.host);
            }
        }
        Some(stranger)
    }

    /// Listens to those that have said something: gives the daemons among them, and what is to be
    /// said of others.
    pub(crate) fn hear(
        &mut self,
        secret: &Secret,
        me: Node,
    ) -> (Vec<(Node, TcpStream)>, Vec<String>) {
        let mut events = Vec::with_capacity(BATCH);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if epoll::wait(&self.set, spare_capacity(&mut events), Some(&at_once)).is_err() {
            return (Vec::new(), Vec::new());
        }
        let (mut daemons, mut refused) = (Vec::new(), Vec::new());
        for event in events {
            match self.hear_one(event.data.u64(), secret, me) {
                Heard::Part | Heard::Gone => {}
                Heard::Refused(why) => refused.extend(self.tells().then_some(why)),
                Heard::Daemon(node, stream) => daemons.push((node, stream)),
            }
        }
        (daemons, refused)
    }

    /// Whether another line about them may be written.
    fn tells(&mut self) -> bool {
        self.told += 1;
        self.told <= MOST_TOLD
    }

    fn hear_one(&mut self, number: u64, secret: &Secret, me: Node) -> Heard {
        let Some(stranger) = self.all.get_mut(&number) else { return Heard::Part };
        if let Some(end) = stranger.read() {
            self.remove(number);
            return end;
        }
        if stranger.got < MESSAGE {
            return Heard::Part;
        }
        let Some(stranger) = self.remove(number) else { return Heard::Part };
        // The connection may stay open, and is waited for elsewhere then.
        if let Err(error) = epoll::delete(&self.set, &stranger.stream) {
            return Heard::Refused(format!("{}: {error}", stranger.from));
        }
        let from = stranger.from;
        let refused = |why: io::Error| Heard::Refused(format!("{from}: {why}"));
        stranger
            .judge(secret, me)
            .map_or_else(refused, |(node, stream)| Heard::Daemon(node, stream))
    }

    /// Closes those that took too long: what is to be said of them.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<String> {
        let mut late = Vec::new();
        while let Some((&number, stranger)) = self.all.first_key_value()
            && stranger.since.after(PATIENCE) <= now
        {
            let from = stranger.from;
            if self.tells() {
                late.push(format!("{from}: it did not identify itself within {PATIENCE:?}"));
            }
            self.remove(number);
        }
        late
    }

    /// When [`Strangers::expire`] is wanted, or another connection may be taken.
    pub(crate) fn deadline(&self, now: Time) -> Time {
        let oldest = self.all.first_key_value();
        let late = oldest.map_or(Time::NEVER, |(_, oldest)| oldest.since.after(PATIENCE));
        let full = self.full_until();
        if full > now { late.min(full) } else { late }
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.of.clear();
    }
}

impl Stranger {
    /// Takes what has come of its message, and nothing beyond; what ends it, if it is over.
    fn read(&mut self) -> Option<Heard> {
        while self.got < MESSAGE {
            match recv(&self.stream, &mut self.message[self.got..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => return Some(Heard::Gone),
                Ok((count, _)) => self.got += count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Some(Heard::Refused(format!("{}: {error}", self.from))),
            }
        }
        None
    }

    /// What its message proves.
    fn judge(self, secret: &Secret, me: Node) -> io::Result<(Node, TcpStream)> {
        let here =
            ResponderAddress::of_connection(self.stream.local_addr()?, self.stream.peer_addr()?);
        let (answer, node) = self.answering.hear(secret, me, here, &self.message)?;
        say(&self.stream, &answer)?;
        Ok((node?, self.stream))
    }
}

impl AsFd for Strangers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// Says a few bytes at once: a fresh connection has room for them.
fn say(stream: &TcpStream, what: &[u8]) -> io::Result<()> {
    match send(stream, what, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)? == what.len() {
        true => Ok(()),
        false => Err(ErrorKind::WriteZero.into()),
    }
}

/// What counts as one host.
fn host(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        ip if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake;
    use std::{net::TcpListener, thread, time::Instant};

    const SECRET: Secret = [1; 32];

    struct Port {
        listener: TcpListener,
        strangers: Strangers,
    }

    impl Port {
        fn new(most: usize) -> Port {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            Port { listener, strangers: Strangers::at_most(most).unwrap() }
        }

        fn connect(&self) -> TcpStream {
            TcpStream::connect(self.listener.local_addr().unwrap()).unwrap()
        }

        /// Takes a connection as if it came from there; gives its number.
        fn take(&mut self, from: [u8; 4], now: Time) -> u64 {
            let (stream, own) = self.listener.accept().unwrap();
            self.strangers.greet(stream, (from, own.port()).into(), now).unwrap();
            self.strangers.next
        }

        fn hear(&mut self, number: u64) -> Heard {
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                match self.strangers.hear_one(number, &SECRET, Node(3)) {
                    Heard::Part => thread::sleep(Duration::from_millis(1)),
                    heard => return heard,
                }
                assert!(Instant::now() < end);
            }
        }
    }

    fn dials(port: &Port, secret: Secret) -> thread::JoinHandle<io::Result<()>> {
        let mut stream = port.connect();
        thread::spawn(move || handshake::dial(&mut stream, &secret, Node(7), Node(3)))
    }

    #[test]
    fn a_daemon_is_let_in_and_others_are_not() {
        let mut port = Port::new(8);
        let dialler = dials(&port, SECRET);
        let number = port.take([127, 0, 0, 1], Time(1));
        assert!(matches!(port.hear(number), Heard::Daemon(Node(7), _)));
        dialler.join().unwrap().unwrap();
        let dialler = dials(&port, [2; 32]);
        let number = port.take([127, 0, 0, 1], Time(1));
        assert!(matches!(port.hear(number), Heard::Refused(why) if why.contains("secret")));
        assert!(dialler.join().unwrap().is_err());
        drop(port.connect());
        let number = port.take([127, 0, 0, 1], Time(1));
        assert!(matches!(port.hear(number), Heard::Gone));
        assert!(port.strangers.all.is_empty() && port.strangers.of.is_empty());
    }

    #[test]
    fn the_oldest_of_the_host_with_most_goes() {
        let mut port = Port::new(4);
        let all: Vec<TcpStream> = (0..6).map(|_| port.connect()).collect();
        let first = port.take([10, 0, 0, 1], Time(1));
        assert!(port.strangers.have_room(Time(1)));
        let many = [2, 2, 2].map(|last| port.take([10, 0, 0, last], Time(1)));
        // Each has its moment.
        let later = Time(1).after(GRACE);
        assert!(!port.strangers.have_room(Time(1)) && port.strangers.have_room(later));
        assert_eq!(port.strangers.deadline(Time(1)), later);
        assert_eq!(port.strangers.deadline(later), Time(1).after(PATIENCE));
        port.take([10, 0, 0, 3], later);
        let left: Vec<u64> = port.strangers.all.keys().copied().collect();
        assert_eq!(left, [first, many[1], many[2], 5]);
        // All of the loopback interface are one.
        port.strangers.clear();
        let kinds = ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"];
        for kind in kinds {
            assert_eq!(host(kind.parse().unwrap()), IpAddr::from([127, 0, 0, 1]));
        }
        let net = |text: &str| host(text.parse().unwrap());
        assert_eq!(net("2001:db8:1:2::5"), net("2001:db8:1:2:9::"));
        assert_ne!(net("2001:db8:1:2::5"), net("2001:db8:1:3::5"));
        drop(all);
    }

    #[test]
    fn a_silent_connection_is_closed_in_time() {
        let mut port = Port::new(4);
        let _idle = [port.connect(), port.connect()];
        port.take([127, 0, 0, 1], Time(1));
        let later = Time(1).after(Duration::from_secs(1));
        port.take([127, 0, 0, 1], later);
        let due = port.strangers.deadline(later);
        assert!(due > later && port.strangers.expire(later).is_empty());
        assert_eq!(port.strangers.expire(due).len(), 1);
        assert_eq!(port.strangers.all.len(), 1);
    }
}
