//! The connections between daemons: made when there is something to say, over TCP, by daemons that
//! have proved to know the job's secret.

use super::{
    admission::{Admission, BATCH, QUEUE},
    control::Control,
    unauthenticated::Unauthenticated,
    wake::{Wake, Waker},
    watch::is_ready,
};
use crate::{
    handshake::{self, Secret},
    message::Message,
};
use petasos_fabric::Time;
use petasos_pmix::{
    Error, Node,
    server::{Frames, Stream},
};
use rustix::{
    event::PollFlags,
    net::{listen, sockopt},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

/// The longest frame between daemons: a whole job's business cards.
const MAX_FRAME: usize = 256 << 20;
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// A daemon that ends a handshake may have let it go for others that connect: so long it is dialled
/// again.
const AGAIN: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);
/// How long a peer's machine may be silent before the kernel holds it for lost: at least so long,
/// as it counts a peer that does not read what it is sent as silent, too.
const SILENCE: Duration = Duration::from_secs(5);

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) node: Node,
    pub(crate) frames: Frames,
}

/// All connections to other daemons.
#[derive(Debug)]
pub(crate) struct Peers {
    me: Node,
    secret: Secret,
    /// How long the kernel lets a machine be silent.
    silence: Duration,
    pub(crate) listener: Option<TcpListener>,
    addresses: BTreeMap<Node, Vec<String>>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    /// By which connection a node is reached.
    via: BTreeMap<Node, u64>,
    /// What waits for a connection.
    waiting: BTreeMap<Node, Vec<Control>>,
    lost: BTreeSet<Node>,
    next: u64,
    pub(crate) unauthenticated: Unauthenticated,
}

impl Peers {
    pub(crate) fn new(me: Node, secret: Secret, silence: Duration) -> io::Result<Peers> {
        Ok(Peers {
            me,
            secret,
            silence: silence.max(SILENCE),
            listener: None,
            addresses: BTreeMap::new(),
            connections: BTreeMap::new(),
            via: BTreeMap::new(),
            waiting: BTreeMap::new(),
            lost: BTreeSet::new(),
            next: 0,
            unauthenticated: Unauthenticated::new()?,
        })
    }

    /// Listens on all addresses of this machine; gives the port.
    pub(crate) fn listen(&mut self) -> io::Result<u16> {
        let any: [SocketAddr; 2] = ["[::]:0".parse().unwrap(), "0.0.0.0:0".parse().unwrap()];
        let listener = TcpListener::bind(&any[..])?;
        listener.set_nonblocking(true)?;
        listen(&listener, QUEUE)?;
        let port = listener.local_addr()?.port();
        self.listener = Some(listener);
        Ok(port)
    }

    /// A node is found at one of these addresses.
    pub(crate) fn found_at(&mut self, node: Node, addresses: Vec<String>) {
        self.addresses.insert(node, addresses);
    }

    /// Where others connect, unless those that did have not had their time and there is no room for
    /// more.
    pub(crate) fn waits_at(&self, now: Time) -> Option<&TcpListener> {
        self.listener.as_ref().filter(|_| self.unauthenticated.have_room(now))
    }

    /// Takes connections, and begins their handshakes. Gives what is to be said of that.
    pub(crate) fn accept(&mut self, admission: &mut Admission, now: Time) -> Option<String> {
        for _ in 0..BATCH {
            let listener = self.waits_at(now)?;
            if let Err(why) = admission.has_room(listener, now) {
                return why;
            }
            let (stream, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => return admission.failed(&error, now),
            };
            // Where it fails the connection is closed, and the other side fails.
            let told = self.unauthenticated.greet(stream, from, now).unwrap_or_default();
            if told.is_some() {
                return told;
            }
        }
        None
    }

    /// Unauthenticated peers have said something: gives the daemons among them, and what is to be
    /// said of the others.
    pub(crate) fn hear(&mut self) -> (Vec<(Node, TcpStream)>, Vec<String>) {
        self.unauthenticated.hear(&self.secret, self.me)
    }

    /// Sends, once there is a connection. False: the node is lost.
    pub(crate) fn send(&mut self, to: Node, what: Control, waker: &Waker) -> bool {
        if let Some(connection) = self.via.get(&to).and_then(|id| self.connections.get_mut(id)) {
            return put(&mut connection.frames, &what).is_ok();
        }
        if self.lost.contains(&to) {
            return false;
        }
        if let Some(waiting) = self.waiting.get_mut(&to) {
            waiting.push(what);
            return true;
        }
        let Some(addresses) = self.addresses.get(&to).cloned() else { return false };
        let Ok(waker) = waker.another() else { return false };
        self.waiting.insert(to, vec![what]);
        let (secret, me) = (self.secret, self.me);
        let dial = move || waker.tell(Wake::Dialled(to, dial(&addresses, &secret, me, to)));
        thread::Builder::new().name("dial".to_owned()).spawn(dial).is_ok()
    }

    /// A connection was made.
    pub(crate) fn up(&mut self, node: Node, stream: TcpStream) -> io::Result<()> {
        if self.lost.contains(&node) || node == self.me {
            return Ok(());
        }
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        stream.set_nonblocking(true)?;
        watch(&stream, self.silence)?;
        self.next += 1;
        let mut frames = Frames::new(Stream::Tcp(stream), MAX_FRAME);
        if !self.via.contains_key(&node) {
            self.via.insert(node, self.next);
            for what in self.waiting.remove(&node).unwrap_or_default() {
                put(&mut frames, &what).map_err(io::Error::other)?;
            }
        }
        self.connections.insert(self.next, Connection { node, frames });
        Ok(())
    }

    /// A node cannot be reached any more.
    pub(crate) fn down(&mut self, node: Node) {
        self.lost.insert(node);
        self.connections.retain(|_, connection| connection.node != node);
        self.via.remove(&node);
        self.waiting.remove(&node);
    }

    /// Whether there is a connection to a node.
    pub(crate) fn is_up(&self, node: Node) -> bool {
        self.via.contains_key(&node)
    }

    /// Whether the other side has closed the connection to a node, which may not have been read to
    /// its end.
    pub(crate) fn has_ended(&self, node: Node) -> bool {
        let connection = self.via.get(&node).and_then(|id| self.connections.get(id));
        connection.is_some_and(|connection| is_ready(connection.frames.as_fd(), PollFlags::RDHUP))
    }

    /// The address of this machine on the way to a node.
    pub(crate) fn own_address(&self, towards: Option<Node>) -> Option<String> {
        let mut connections = self.connections.values();
        let connection =
            connections.find(|connection| towards.is_none_or(|node| connection.node == node))?;
        let address = rustix::net::getsockname(connection.frames.as_fd()).ok()?;
        let address = SocketAddr::try_from(address).ok()?;
        Some(address.ip().to_canonical().to_string())
    }

    /// Where the daemon of a node listens, on the machine with which there is a connection.
    pub(crate) fn listens_at(&self, node: Node) -> Option<SocketAddr> {
        let connection = self.via.get(&node).and_then(|id| self.connections.get(id))?;
        let far = SocketAddr::try_from(rustix::net::getpeername(connection.frames.as_fd()).ok()??)
            .ok()?;
        let known: SocketAddr = self.addresses.get(&node)?.first()?.parse().ok()?;
        Some(SocketAddr::new(far.ip(), known.port()))
    }

    /// Bytes that wait to be sent to a node.
    pub(crate) fn backlog(&self, node: Node) -> usize {
        let connection = self.via.get(&node).and_then(|id| self.connections.get(id));
        connection.map_or(0, |connection| connection.frames.backlog())
    }

    /// Bytes that wait to be sent at all.
    pub(crate) fn total_backlog(&self) -> usize {
        self.connections.values().map(|connection| connection.frames.backlog()).sum()
    }
}

/// An answer that is longer than the other side takes is an error instead; what else is ends the
/// connection, as it would there.
fn put(frames: &mut Frames, what: &Control) -> Result<(), Error> {
    let Err(error) = frames.push(what) else { return Ok(()) };
    let refused = match what {
        Control::Engine(Message::Answer { id, .. }) => {
            Message::Answer { id: *id, result: Err(error) }
        }
        Control::Engine(Message::BusinessCardAnswer { id, .. }) => {
            Message::BusinessCardAnswer { id: *id, result: Err(error) }
        }
        _ => return Err(error),
    };
    frames.push(&Control::Engine(refused))
}

/// Whether the other side has closed the connection, and not said anything wrong.
fn ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Has the kernel notice a machine that falls silent.
fn watch(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    // The kernel takes no larger number.
    sockopt::set_tcp_keepcnt(stream, (milliseconds / 1000).min(127))?;
    sockopt::set_tcp_user_timeout(stream, milliseconds)?;
    Ok(())
}

fn dial(
    addresses: &[String],
    secret: &Secret,
    me: Node,
    expected: Node,
) -> Result<TcpStream, String> {
    let mut why = Vec::new();
    for address in addresses {
        let connect = || -> io::Result<TcpStream> {
            let socket: SocketAddr = address.parse().map_err(io::Error::other)?;
            let mut stream = TcpStream::connect_timeout(&socket, CONNECT)?;
            handshake::dial(&mut stream, secret, me, expected)?;
            Ok(stream)
        };
        let end = Instant::now() + AGAIN;
        loop {
            match connect() {
                Ok(stream) => return Ok(stream),
                Err(error) if ended(&error) && Instant::now() < end => thread::sleep(PAUSE),
                Err(error) => {
                    why.push(format!("{address}: {error}"));
                    break;
                }
            }
        }
    }
    Err(if why.is_empty() { "it has no address".to_owned() } else { why.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_pmix::{Value, message::Answer};

    #[test]
    fn an_answer_that_is_too_long_is_an_error() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        let [mut a, mut b] = [a, b].map(|stream| Frames::new(Stream::Unix(stream), 300));
        let result = Ok(Answer::Value(Value::from(vec![1; 1000])));
        put(&mut a, &Control::Engine(Message::Answer { id: 3, result })).unwrap();
        assert!(a.flush().unwrap());
        b.fill().unwrap();
        match b.take().unwrap() {
            Some(Control::Engine(Message::Answer { id: 3, result: Err(error) })) => {
                assert!(error.to_string().contains("the 300 that are allowed"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        // What is no answer has no such reply.
        assert!(put(&mut a, &Control::Input(vec![1; 1000])).is_err());
    }
}
