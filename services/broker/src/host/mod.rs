//! The broker as a process has it: sockets, rings and memory around the engine.
//!
//! One thread does all of it. A port's ring is looked at in every pass while something comes
//! through it; then its tenant is told that the broker sleeps, and rings a doorbell. When no port is
//! awake, and the engine has nothing to do, the thread sleeps.

mod closer;
mod control;
mod listener;
mod port;

pub use control::{Ask, ask};

use crate::{
    config::{Config, ConfigError},
    engine::{Engine, Memory, Order, Outcome, PortId, Violation},
};
use closer::Closer;
use control::Client;
use listener::Listener;
use petasos_fabric::{Clock, EventFd, Time};
use petasos_shm::link::Link;
use petasos_tenant::{
    control::Control,
    socket::{self, Received},
    wire::{Answer, Piece, Request},
};
use port::Port;
use rustix::{
    event::{Timespec, epoll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Messages taken from the rings of one tenant before the next has its turn, and from one socket.
const TURN: usize = 64;
/// Messages of a socket among which a file is looked for that the ring speaks of.
const BEHIND: usize = 512;
/// Orders carried out before rings are looked at again.
const ORDERS: usize = 256;
/// Passes in which nothing came through a ring until its tenant is told that the broker sleeps.
const IDLE: u32 = 16;
/// Processes of one tenant that have connected and not said what they are.
const GREETING: usize = 64;
/// Processes that are let in at one listener before others have their turn.
const ACCEPTS: usize = 16;
/// How long they may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon it is looked whether a tenant's descriptors are closed.
const MUTED: Duration = Duration::from_millis(500);
/// Administrators at a time.
const CLIENTS: usize = 16;

const STOP: u64 = 0;
const CONTROL: u64 = 1;
/// Listeners of tenants have the numbers from here on; all else those from `FIRST` on.
const TENANTS: u64 = 2;
const FIRST: u64 = 1 << 32;

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A socket.
    #[error("{path}: {error}{}", advice(*error))]
    Socket {
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: Errno,
    },
    /// The system refused something else.
    #[error("the system said: {0}")]
    System(#[from] Errno),
}

fn advice(error: Errno) -> &'static str {
    match error {
        Errno::ADDRINUSE => " (another broker listens there)",
        Errno::NOENT => " (make the directory)",
        _ => "",
    }
}

/// Ends a broker, from any thread.
#[derive(Clone)]
pub struct Stop(Arc<(EventFd, AtomicBool)>);

impl Stop {
    /// It ends soon.
    pub fn stop(&self) {
        self.0.1.store(true, Ordering::Release);
        self.0.0.signal();
    }
}

/// What a descriptor is for.
enum Is {
    Greeting { socket: OwnedFd, tenant: usize, until: Instant },
    Port(Box<Port>),
    Client(Client),
}

type Again = Box<dyn FnMut() -> Result<Config, ConfigError> + Send>;

/// A broker.
pub struct Broker {
    config: Config,
    /// How it is read again.
    again: Option<Again>,
    engine: Engine,
    clock: Clock,
    epoll: OwnedFd,
    stop: Stop,
    control: Listener,
    listeners: Vec<Listener>,
    /// By tenant.
    closers: Vec<Closer>,
    /// Tenants of which no process is let in until more of their descriptors are closed.
    muted: Vec<usize>,
    things: HashMap<u64, Is>,
    ports: HashMap<PortId, u64>,
    /// Ports whose rings are looked at.
    awake: Vec<u64>,
    /// How many of these each tenant has.
    sharing: Vec<usize>,
    /// Ports to which something was sent in this pass.
    touched: Vec<PortId>,
    /// By tenant.
    greeting: Vec<usize>,
    next: u64,
    message: Vec<u8>,
    payload: Vec<u8>,
}

impl Broker {
    /// Listens for tenants. `file` is what [`Ask::Reload`] reads again; where something is added to
    /// that, see [`Broker::read_by`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: Config, file: Option<&Path>) -> Result<Broker, OpenError> {
        config.check()?;
        // Each endpoint of a tenant takes one; those that a message brings beyond the limit the system
        // would close within the call that receives it.
        let files = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
        let clock = Clock::start();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = Stop(Arc::new((EventFd::new()?, AtomicBool::new(false))));
        let at = |path: &Path, all| {
            Listener::bind(path, all)
                .map_err(|error| OpenError::Socket { path: path.to_owned(), error })
        };
        let control = at(&config.control, false)?;
        let listeners: Vec<Listener> = config
            .tenants
            .iter()
            .map(|tenant| at(&tenant.socket, true))
            .collect::<Result<_, _>>()?;
        let watch = |fd: &dyn AsFd, name: u64| {
            epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(name), epoll::EventFlags::IN)
        };
        watch(&stop.0.0, STOP)?;
        watch(&control.fd, CONTROL)?;
        for (nth, listener) in listeners.iter().enumerate() {
            watch(&listener.fd, TENANTS + nth as u64)?;
        }
        let engine = Engine::new(&config, clock.now());
        let (greeting, sharing) = (vec![0; listeners.len()], vec![0; listeners.len()]);
        let closers = listeners.iter().map(|_| Closer::default()).collect();
        Ok(Broker {
            config,
            again: file.map(|file| {
                let file = file.to_owned();
                Box::new(move || Config::read(&file)) as Again
            }),
            engine,
            clock,
            epoll,
            stop,
            control,
            listeners,
            closers,
            muted: Vec::new(),
            things: HashMap::new(),
            ports: HashMap::new(),
            awake: Vec::new(),
            sharing,
            touched: Vec::new(),
            greeting,
            next: FIRST,
            message: Vec::new(),
            payload: Vec::new(),
        })
    }

    /// What ends it.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// What [`Ask::Reload`] has instead of its file: all of the configuration, as it was made for
    /// [`Broker::open`]. What was added to a file and is not added again is not there any more.
    pub fn read_by(&mut self, again: impl FnMut() -> Result<Config, ConfigError> + Send + 'static) {
        self.again = Some(Box::new(again));
    }

    /// Serves until it is stopped.
    pub fn run(&mut self) {
        let mut polled = Instant::now();
        while !self.stop.0.1.load(Ordering::Acquire) {
            let busy = self.pass();
            if !busy && self.awake.is_empty() {
                self.wait(self.engine.next_time());
                polled = Instant::now();
            } else if polled.elapsed() > Duration::from_micros(200) {
                // New tenants, and those that have ended, are not made to wait for a quiet moment.
                self.wait(Time::ZERO);
                polled = Instant::now();
            }
        }
    }

    /// Looks at rings, and does what there is to do. False if that was nothing.
    fn pass(&mut self) -> bool {
        let mut busy = false;
        let mut awake = std::mem::take(&mut self.awake);
        let tenant = |broker: &Broker, name: &u64| match broker.things.get(name) {
            Some(Is::Port(port)) => port.tenant,
            _ => 0,
        };
        self.sharing.fill(0);
        for name in &awake {
            let tenant = tenant(self, name);
            self.sharing[tenant] += 1;
        }
        awake.retain(|name| {
            let share = TURN / self.sharing[tenant(self, name)].max(1);
            let (found, stays) = self.look(*name, share.max(1));
            busy |= found;
            stays
        });
        awake.append(&mut self.awake);
        self.awake = awake;
        busy | self.carry_out()
    }

    /// Looks at a ring, for up to `most` messages: whether something was there, and whether to look again in the next pass.
    fn look(&mut self, name: u64, most: usize) -> (bool, bool) {
        let read = self.read(name, most);
        let Some(Is::Port(port)) = self.things.get_mut(&name) else { return (false, false) };
        if port.ended {
            self.end(name);
            return (true, false);
        }
        let Ok(count) = read else { return (true, false) };
        // Room that was given back, before the tenant is thought to be quiet.
        if self.engine.is_full(port.id) && port.link.starve() == Ok(true) {
            self.engine.room(port.id);
            port.idle = 0;
        }
        port.wake();
        if count > 0 {
            (port.idle, port.busy) = (0, Instant::now());
            return (true, true);
        }
        port.idle += 1;
        let spins = self.config.spin_us > 0 && port.busy.elapsed() < self.config.spin();
        if port.idle < IDLE || spins {
            return (false, true);
        }
        if port.link.sleep() {
            port.asleep = true;
            return (false, false);
        }
        port.link.awake();
        (true, true)
    }

    /// Takes up to `most` messages of a port's ring. An error: it is a port no more.
    fn read(&mut self, name: u64, most: usize) -> Result<usize, ()> {
        let now = self.clock.now();
        let mut message = std::mem::take(&mut self.message);
        let mut count = 0;
        let result = loop {
            let Some(Is::Port(port)) = self.things.get_mut(&name) else { break Err(()) };
            if count == most {
                break Ok(count);
            }
            match port.link.receive(&mut message) {
                Ok(true) => count += 1,
                Ok(false) => break Ok(count),
                Err(broken) => {
                    self.expel(name, &broken.to_string());
                    break Err(());
                }
            }
            if let Err(violation) = self.take(name, &message, now) {
                self.expel(name, &violation.to_string());
                break Err(());
            }
        };
        self.message = message;
        result
    }

    fn take(&mut self, name: u64, message: &[u8], now: Time) -> Result<(), Violation> {
        let request = Request::decode(message)?;
        let Some(Is::Port(port)) = self.things.get(&name) else { return Ok(()) };
        let id = port.id;
        if let Request::Lend { payload: pieces, .. } | Request::Fetch { into: pieces, .. } =
            &request
            && pieces.iter().any(|piece| !port.has_file(piece.file))
        {
            // Its descriptor is under way by the socket, behind a few doorbells. If the end is behind
            // it, that is found after this message.
            self.hear(name, BEHIND);
        }
        self.engine.handle(id, &request, now)?;
        if let Request::Forget { file } = request
            && let Some(Is::Port(port)) = self.things.get_mut(&name)
        {
            port.forget(file);
        }
        Ok(())
    }

    /// Does what the engine orders. False if that was nothing.
    fn carry_out(&mut self) -> bool {
        let now = self.clock.now();
        let Broker { engine, things, ports, touched, payload, .. } = self;
        let mut broken = Vec::new();
        let mut count = 0;
        while count < ORDERS
            && let Some(order) = engine.poll(now)
        {
            count += 1;
            let outcome = match order {
                Order::Send { port, answer } => {
                    touched.push(port);
                    match port_of(things, ports, port).map(|port| port.send(&answer)) {
                        Some(Ok(true)) => Outcome::Done,
                        Some(Ok(false)) => Outcome::Full,
                        Some(Err(error)) => {
                            broken.push((port, error.to_string()));
                            Outcome::Full
                        }
                        None => Outcome::Done,
                    }
                }
                Order::Copy { from, source, to, target } => {
                    match copy(things, ports, (from, source), (to, target)) {
                        Some(()) => Outcome::Done,
                        None => Outcome::Failed,
                    }
                }
                Order::Payload { from, source, to, connection } => {
                    touched.push(to);
                    let read = port_of(things, ports, from).and_then(|p| p.read(source, payload));
                    // Only what was read is sent.
                    let sent = read.and_then(|()| {
                        let answer = Answer::Payload { connection, bytes: payload };
                        Some(port_of(things, ports, to)?.send(&answer))
                    });
                    match sent {
                        None => Outcome::Failed,
                        Some(Ok(true)) => Outcome::Done,
                        Some(Ok(false)) => Outcome::Full,
                        Some(Err(error)) => {
                            broken.push((to, error.to_string()));
                            Outcome::Full
                        }
                    }
                }
            };
            engine.complete(outcome);
        }
        touched.sort();
        touched.dedup();
        for id in touched.drain(..) {
            if let Some(port) = port_of(things, ports, id) {
                port.wake();
            }
        }
        for (id, why) in broken {
            if let Some(name) = self.ports.get(&id).copied() {
                self.expel(name, &why);
            }
        }
        count > 0
    }

    /// Sleeps until a descriptor is ready, or until a time; handles what is.
    fn wait(&mut self, until: Time) {
        let now = self.clock.now();
        let mut left = if until == Time::NEVER { Duration::MAX } else { until.since(now) };
        let greeting = self.greeting.iter().any(|count| *count > 0);
        if greeting {
            left = left.min(PATIENCE);
        }
        if !self.muted.is_empty() {
            left = left.min(MUTED);
        }
        let left = (left < Duration::from_secs(1 << 30)).then(|| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut events = Vec::with_capacity(64);
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.epoll, spare, left.as_ref()).is_err() {
            return;
        }
        self.unmute();
        for event in &events {
            let epoll::Event { data, .. } = *event;
            match data.u64() {
                STOP => {}
                CONTROL => self.accept_client(),
                name if name < FIRST => self.accept_tenant((name - TENANTS) as usize),
                name => match self.things.get(&name) {
                    Some(Is::Greeting { .. }) => self.greet(name),
                    Some(Is::Port(_)) => {
                        self.hear(name, TURN);
                        if matches!(self.things.get(&name), Some(Is::Port(port)) if port.ended) {
                            self.end(name);
                        }
                    }
                    Some(Is::Client(_)) => self.serve_client(name),
                    None => {}
                },
            }
        }
        if greeting {
            let now = Instant::now();
            let late = |is: &Is| matches!(is, Is::Greeting { until, .. } if *until <= now);
            let late: Vec<u64> =
                self.things.iter().filter(|(_, is)| late(is)).map(|(name, _)| *name).collect();
            late.into_iter().for_each(|name| self.drop_thing(name));
        }
    }

    fn add(&mut self, fd: &OwnedFd, flags: epoll::EventFlags) -> Option<u64> {
        let name = self.next;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(name), flags).ok()?;
        self.next += 1;
        Some(name)
    }

    fn drop_thing(&mut self, name: u64) {
        match self.things.remove(&name) {
            Some(Is::Greeting { socket, tenant, .. }) => {
                self.greeting[tenant] -= 1;
                self.closers[tenant].close_socket(socket);
            }
            Some(Is::Port(port)) => {
                let Port { id, tenant, socket, .. } = *port;
                self.ports.remove(&id);
                self.engine.detach(id, self.clock.now());
                self.closers[tenant].close_socket(socket);
            }
            Some(Is::Client(_)) | None => {}
        }
    }

    /// A port broke the rules: it is told so, and is one no more.
    fn expel(&mut self, name: u64, why: &str) {
        if let Some(Is::Port(port)) = self.things.get(&name) {
            let _ = socket::send(&port.socket, &Control::Refused(why.to_owned()), None);
            self.engine.expel(port.id, why, self.clock.now());
        }
        self.drop_thing(name);
    }
}

/// How tenants and administrators come.
impl Broker {
    /// Lets processes of this tenant wait, or not.
    fn listen(&mut self, tenant: usize, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(TENANTS + tenant as u64);
        let _ = epoll::modify(&self.epoll, &self.listeners[tenant].fd, data, flags);
    }

    fn unmute(&mut self) {
        let mut muted = std::mem::take(&mut self.muted);
        muted.retain(|tenant| {
            let behind = self.closers[*tenant].is_behind();
            if !behind {
                self.listen(*tenant, epoll::EventFlags::IN);
            }
            behind
        });
        self.muted = muted;
    }

    fn accept_tenant(&mut self, tenant: usize) {
        if self.closers[tenant].is_behind() {
            tracing::warn!(
                tenant = self.config.tenants[tenant].name,
                "its descriptors do not close"
            );
            self.listen(tenant, epoll::EventFlags::empty());
            return self.muted.push(tenant);
        }
        for _ in 0..ACCEPTS {
            let Some((socket, peer)) = self.listeners[tenant].accept() else { return };
            let config = &self.config.tenants[tenant];
            let (uid, pid) = (peer.uid.as_raw(), peer.pid.as_raw_nonzero());
            if config.users.as_ref().is_some_and(|users| !users.contains(&uid)) {
                tracing::warn!(tenant = config.name, uid, %pid, "a process of another user");
                let why = format!("user {uid} is not of the tenant {}", config.name);
                let _ = socket::send(&socket, &Control::Refused(why), None);
                self.closers[tenant].close_socket(socket);
                continue;
            }
            if self.greeting[tenant] >= GREETING {
                self.closers[tenant].close_socket(socket);
                continue;
            }
            let until = Instant::now() + PATIENCE;
            if let Some(name) = self.add(&socket, epoll::EventFlags::IN) {
                self.greeting[tenant] += 1;
                self.things.insert(name, Is::Greeting { socket, tenant, until });
                // Most have said it already.
                self.greet(name);
            }
        }
    }

    /// Hears what a process wants.
    fn greet(&mut self, name: u64) {
        let Some(Is::Greeting { socket, tenant, .. }) = self.things.get(&name) else { return };
        let tenant = *tenant;
        let (wanted, file) = match socket::receive(socket) {
            Ok(Received::Message(Control::Hello(wanted), Some(file))) => (wanted, file),
            Err(Errno::AGAIN | Errno::INTR) => return,
            other => {
                let came = other.map(Received::into_descriptors).unwrap_or_default();
                came.into_iter().for_each(|fd| self.closers[tenant].close(fd));
                return self.drop_thing(name);
            }
        };
        let now = self.clock.now();
        let attached = Link::adopt(&file)
            .map_err(|error| error.to_string())
            .and_then(|link| Ok((link, self.engine.attach(tenant, wanted.as_ref(), now)?)));
        self.closers[tenant].close(file);
        let Some(Is::Greeting { socket, .. }) = self.things.remove(&name) else { return };
        self.greeting[tenant] -= 1;
        match attached {
            Ok((link, (id, called))) => {
                let Memory { bytes: memory, files } = self.engine.memory(id);
                tracing::info!(endpoint = %called, "an endpoint");
                let welcome = Control::Welcome { name: called, memory, files };
                let _ = socket::send(&socket, &welcome, None);
                self.things.insert(name, Is::Port(Box::new(Port::new(id, tenant, socket, link))));
                self.ports.insert(id, name);
                self.awake.push(name);
            }
            Err(why) => {
                tracing::info!(tenant = self.config.tenants[tenant].name, why, "refused");
                let _ = socket::send(&socket, &Control::Refused(why), None);
                self.closers[tenant].close_socket(socket);
            }
        }
    }

    /// Takes up to `most` messages that came by the socket of a port: doorbells and files. Its end is
    /// noted, and no more: this is called while its ring is read.
    fn hear(&mut self, name: u64, most: usize) {
        for _ in 0..most {
            let Some(Is::Port(port)) = self.things.get_mut(&name) else { return };
            if port.ended {
                return;
            }
            match socket::receive(&port.socket) {
                Ok(Received::Message(Control::Doorbell, None)) => self.rouse(name),
                Ok(Received::Message(Control::File { id, len }, Some(fd))) => {
                    let registered = self
                        .engine
                        .register(port.id, id, len)
                        .map_err(|violation| violation.to_string())
                        .and_then(|()| port.register(id, &fd, len));
                    self.closers[port.tenant].close(fd);
                    if let Err(why) = registered {
                        return self.expel(name, &why);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                Ok(Received::End) | Err(_) => port.ended = true,
                Ok(other) => {
                    let what = match &other {
                        Received::Message(control, _) => format!("{control:?}"),
                        _ => "what is no message".to_owned(),
                    };
                    let closer = &mut self.closers[port.tenant];
                    other.into_descriptors().into_iter().for_each(|fd| closer.close(fd));
                    return self.expel(name, &format!("by its socket came {what}"));
                }
            }
        }
    }

    /// A port has ended, as it said by its socket. What it sent last counts, as far as its ring may
    /// hold that: its sender need not be gone, and could go on for ever.
    fn end(&mut self, name: u64) {
        let _ = self.read(name, Link::MESSAGES);
        self.drop_thing(name);
    }

    /// A doorbell: the ring is looked at.
    fn rouse(&mut self, name: u64) {
        let Some(Is::Port(port)) = self.things.get_mut(&name) else { return };
        port.idle = 0;
        if std::mem::take(&mut port.asleep) {
            port.link.awake();
            self.awake.push(name);
        }
    }

    fn accept_client(&mut self) {
        for _ in 0..ACCEPTS {
            let Some((fd, peer)) = self.control.accept() else { return };
            let clients = self.things.values().filter(|is| matches!(is, Is::Client(_))).count();
            let (uid, own) = (peer.uid, rustix::process::geteuid());
            if clients >= CLIENTS || !(uid == own || uid.is_root()) {
                continue;
            }
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            if let Some(name) = self.add(&fd, flags) {
                self.things.insert(name, Is::Client(Client::new(fd)));
                self.serve_client(name);
            }
        }
    }

    fn serve_client(&mut self, name: u64) {
        let Some(Is::Client(client)) = self.things.get_mut(&name) else { return };
        let asked = client.asks();
        let answer = match asked {
            Ok(None) => None,
            Ok(Some(Ask::Status)) => {
                Some(serde_json::to_string(&self.engine.status()).unwrap_or_default())
            }
            Ok(Some(Ask::Reload)) => {
                let error = self.reload().err().map(|error| error.to_string());
                Some(serde_json::json!({ "error": error }).to_string())
            }
            Err(()) => return self.drop_thing(name),
        };
        let Some(Is::Client(client)) = self.things.get_mut(&name) else { return };
        if let Some(answer) = answer {
            client.answer(answer);
        }
        if client.go_on() {
            self.drop_thing(name);
        }
    }

    /// Reads the configuration again: rules and limits. Tenants are those of the start.
    fn reload(&mut self) -> Result<(), ConfigError> {
        let wrong = |what: &str| ConfigError::Wrong(what.to_owned());
        let again = self.again.as_mut().ok_or_else(|| wrong("the broker has no file to read"))?;
        let config = again()?;
        config.check()?;
        let same = |config: &Config| {
            let of = |tenant: &crate::config::Tenant| (tenant.name.clone(), tenant.socket.clone());
            config.tenants.iter().map(of).collect::<Vec<_>>()
        };
        if same(&config) != same(&self.config) || config.control != self.config.control {
            return Err(wrong("other tenants or sockets: start the broker again for these"));
        }
        self.engine.reload(&config, self.clock.now());
        self.config = config;
        tracing::info!("the configuration was read again");
        Ok(())
    }
}

fn port_of<'a>(
    things: &'a mut HashMap<u64, Is>,
    ports: &HashMap<PortId, u64>,
    id: PortId,
) -> Option<&'a mut Port> {
    match things.get_mut(ports.get(&id)?) {
        Some(Is::Port(port)) => Some(port),
        _ => None,
    }
}

fn copy(
    things: &HashMap<u64, Is>,
    ports: &HashMap<PortId, u64>,
    (from, source): (PortId, &[Piece]),
    (to, target): (PortId, &[Piece]),
) -> Option<()> {
    let of = |id: PortId| match things.get(ports.get(&id)?) {
        Some(Is::Port(port)) => Some(port),
        _ => None,
    };
    port::copy(of(from)?, source, of(to)?, target)
}
