//! The daemon of a node: an [`Engine`](crate::engine::Engine) with its sockets, and the processes
//! of the node. One thread, asleep in `poll` when there is nothing to do.
//!
//! The head node's daemon runs within the command that launches the job, the others are started on
//! their hosts and end with it. Each has a private directory, and a guard that removes it and ends
//! the processes if the daemon itself is killed.

mod admission;
mod again;
mod child;
mod clients;
mod control;
mod directory;
mod elf;
mod files;
mod finished;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod gathering;
mod guard;
mod guards;
mod head_node;
mod image;
mod input;
mod libraries;
mod networks;
mod output_files;
mod peers;
mod print;
mod rank;
mod ranks;
mod replace;
mod restart;
mod signals;
mod silence;
mod stack;
mod staging;
mod start;
mod subreaper;
mod surroundings;
mod survey;
mod sweep;
mod tree;
mod unauthenticated;
mod wake;
mod watch;

use crate::{
    controller::Controller,
    engine::{Config, Engine, Output},
    handshake::{Secret, derived},
    plugins::{Plugins, SECRET_FILE},
    pmix41::Surroundings,
};
use admission::{Admission, Files};
use clients::{Clients, Listeners};
use control::{Bootstrap, Control, Setup};
use files::JobFiles;
use guards::Guards;
use head_node::HeadNode;
use networks::Resources;
use peers::Peers;
use petasos_fabric::{Clock, Time};
use petasos_pmix::server::{DATASTORE_LINK, DaemonMessage, JOB_FILE, host_name, write_table};
use petasos_pmix::{
    Node, Proc,
    job::JobMap,
    server::{Datastore, hex},
};
use petasos_wire::{Encoding, from_bytes};
use ranks::LocalRanks;
use rustix::io::Errno;
use silence::Silence;
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};
use subreaper::Subreaper;
use tree::Remote;
use wake::{Wake, Waker, Wakes};
use watch::Watch;

pub use guard::{GUARD, run as run_guard};

pub(crate) use control::{Coming, Program as Launched, Starter};
pub(crate) use head_node::{Plan, run as run_head};
pub(crate) use staging::ToStage;

/// The word on the command line that makes a process the daemon of another host.
pub const DAEMON: &str = "pmix-daemon";
/// The longest that a daemon is told first: with all that it starts.
const MAX_BOOTSTRAP: usize = 64 << 20;
/// Lines that a daemon logs, at most.
const MAX_LOGGED: u32 = 100;

#[derive(Debug)]
struct Daemon {
    me: Node,
    clock: Clock,
    engine: Engine,
    secret: Secret,
    peers: Peers,
    silence: Silence,
    job: Option<Arc<JobMap>>,
    setup: Option<Setup>,
    files: JobFiles,
    plugins: Plugins,
    guards: Guards,
    /// What these leave behind.
    subreaper: Option<Subreaper>,
    /// When connections are taken.
    admission: Admission,
    /// The job's data, and the business cards that are here, for the processes of this node.
    datastore: Option<Datastore>,
    listeners: Listeners,
    clients: Clients,
    ranks: LocalRanks,
    /// What clients of the PMIx library are told of this node.
    around: Option<Arc<Surroundings>>,
    /// The daemons that this one has started.
    remotes: BTreeMap<Node, Remote>,
    waker: Waker,
    wakes: Wakes,
    resources: Resources,
    watch: Watch,
    /// What only the daemon of the head node has.
    head: Option<Box<HeadNode>>,
    /// Standard input of a daemon that is not the head node's: the process that started it has
    /// ended when it does.
    follows_starter: bool,
    logged: u32,
    /// It is over, and why if it is so before its time.
    over: Option<Result<(), String>>,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug)]
enum Source {
    Wakes,
    Clients,
    /// Where other daemons connect.
    Unauthenticated,
    /// Some that connected there have said something.
    Said,
    Pmix41,
    /// One of those that are many.
    Set,
    Client(u64),
    /// A client to which more can be sent.
    Drain,
    Peer(u64),
    Rank(u32),
    Out(u32),
    Err(u32),
    Feed,
    Input,
    /// Standard input, which ends with the process that started this daemon.
    Starter,
    Guard,
    Remote(Node),
    /// A child of this process has ended.
    ChildEnded,
}

impl Daemon {
    fn new(
        me: Node,
        nodes: u32,
        secret: Secret,
        silence: Duration,
        config: Config,
    ) -> io::Result<Daemon> {
        let files = Files::raise();
        // Before there are other threads, which would be told of the ends of children.
        let subreaper = Subreaper::begin();
        let (waker, wakes) = Wakes::make()?;
        let clock = Clock::start();
        Ok(Daemon {
            me,
            clock,
            engine: Engine::new(me, nodes, config, clock.now()),
            secret,
            peers: Peers::new(me, secret, silence)?,
            silence: Silence::new(silence),
            job: None,
            setup: None,
            files: JobFiles::default(),
            plugins: Plugins::default(),
            guards: Guards::new()?,
            subreaper: Some(subreaper),
            admission: Admission::new(files),
            datastore: None,
            listeners: Listeners::new(),
            clients: Clients::default(),
            ranks: LocalRanks::default(),
            around: None,
            remotes: BTreeMap::new(),
            waker,
            wakes,
            resources: Resources::default(),
            watch: Watch::new()?,
            head: None,
            follows_starter: false,
            logged: 0,
            over: None,
        })
    }

    fn log(&mut self, what: &str) {
        self.logged += 1;
        if self.logged <= MAX_LOGGED {
            // There may be no reader any more.
            let _ = writeln!(io::stderr(), "petasos: {}: {what}", host_name());
        }
    }

    /// Starts those below, and is there for the head node.
    fn begin(&mut self, bootstrap: &Bootstrap) -> io::Result<()> {
        self.follows_starter = true;
        let port = self.peers.listen()?;
        self.peers.found_at(Node::HEAD, bootstrap.head.clone());
        self.order_nothing(Node::HEAD);
        self.start_daemons(bootstrap);
        while !self.peers.is_up(Node::HEAD) && self.over.is_none() {
            self.handle_outputs();
            // It may be over by that, and nothing else comes then.
            if self.over.is_none() {
                self.wait_and_handle(Time::NEVER);
            }
        }
        if let Some(Err(why)) = &self.over {
            return Err(io::Error::other(why.clone()));
        }
        // The process that started this daemon may end from now on.
        rustix::process::set_parent_process_death_signal(None)?;
        let none = || io::Error::other("the route to the head node has no address");
        let host = self.peers.own_address(Some(Node::HEAD)).ok_or_else(none)?;
        let offers = self.reserve(bootstrap.ranks, bootstrap.alone).map_err(io::Error::other)?;
        self.report(Control::Hello { host, port, offers });
        self.begin_watching();
        self.take_inventory();
        Ok(())
    }

    /// Makes everything ready that processes need, but them; gives where files for them are taken.
    fn prepare(&mut self, mut setup: Setup) -> Result<Vec<u8>, String> {
        let made = self.files.make(&format!("{}.{}", setup.job.name, self.me.0));
        if let Some(instead) = made.map_err(|error| error.to_string())? {
            self.log(&instead);
        }
        let directory =
            self.files.directory().map(|place| place.path().to_owned()).unwrap_or_default();
        let secret = self.set_up_networks(&mut setup, &directory)?;
        self.make_stage(&mut setup)?;
        let job = JobMap::new(setup.job.clone()).map_err(|error| error.to_string())?;
        let job = Arc::new(job.with_namespace(space_of(&setup.job.name, &self.secret)));
        self.guards.start(self.files.directories()).map_err(|error| error.to_string())?;
        let place = self.files.directory().ok_or("there is no directory")?;
        let listeners = &mut self.listeners;
        let mut make = || -> io::Result<()> {
            if let Some(secret) = &secret {
                place.write(SECRET_FILE, secret)?;
            }
            place.write(JOB_FILE, &write_table(&job))?;
            listeners.open(place)
        };
        make().map_err(|error| error.to_string())?;
        // Where the system does not allow it, processes read the file, and ask for every business
        // card.
        self.datastore = Datastore::create(&job).ok().filter(|datastore| {
            std::os::unix::fs::symlink(datastore.path(), place.path().join(DATASTORE_LINK)).is_ok()
        });
        for (node, address) in &setup.daemons {
            self.peers.found_at(*node, vec![address.clone()]);
        }
        self.engine.add_job(job.clone());
        let address = self.receive_files(&setup);
        (self.job, self.setup) = (Some(job), Some(setup));
        address
    }

    /// The guard was ended: there is another one, which learns what there is.
    fn guard_ended(&mut self) {
        if let Err(error) = self.guards.replace(self.ranks.all_running()) {
            self.log(&format!("starting another guard: {error}"));
        }
    }

    /// To the head node.
    fn report(&mut self, what: Control) {
        match self.head {
            Some(_) => self.report_came(self.me, what),
            None => self.send(Node::HEAD, what),
        }
    }

    /// From the head node to a node.
    fn order(&mut self, to: Node, what: Control) {
        match to == self.me {
            true => self.obey(what),
            false => self.send(to, what),
        }
    }

    fn send(&mut self, to: Node, what: Control) {
        if !self.peers.send(to, what, &self.waker) {
            self.lost(to, "it cannot be reached");
        }
    }

    /// What the head node says.
    fn obey(&mut self, what: Control) {
        match what {
            Control::Setup(setup) => {
                let prepared = self.prepare(*setup);
                self.report(Control::Prepared(prepared));
            }
            Control::Others(others) => self.learn_of(others),
            Control::Watch => self.watch_all(),
            Control::Start => {
                self.files.all_received();
                self.watch_all();
                self.start_ranks();
            }
            Control::OutputTaken(bytes) => self.ranks.output_taken(bytes),
            Control::Input(bytes) => self.feed(&bytes),
            Control::Signal(number) => self.signal_ranks(number),
            Control::Bye => self.over = Some(Ok(())),
            _ => {}
        }
    }

    /// Makes a connection without saying anything of consequence.
    fn order_nothing(&mut self, node: Node) {
        self.send(node, Control::OutputTaken(0));
    }

    fn control(&mut self, from: Node, what: Control) {
        match what {
            Control::Engine(message) => self.engine.message(self.clock.now(), from, message),
            Control::OutputTaken(0) => {}
            what if self.head.is_some() => self.report_came(from, what),
            what if from == Node::HEAD => self.obey(what),
            // Only the head node gives orders.
            _ => self.log(&format!("{from} gives an order that is not its to give")),
        }
    }

    /// Does what the engine wants done.
    fn handle_outputs(&mut self) {
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Send { to, message } => self.send(to, Control::Engine(message)),
                Output::Answer { client, id, result } => {
                    self.tell_client(client, &DaemonMessage::Answer { id, result });
                }
                Output::Deliver { client, event, only } => {
                    self.tell_client(client, &DaemonMessage::Event { event, only });
                }
                Output::CardChanged(proc) => self.shelve(proc),
                Output::Restarted { proc, restarts } => self.restarted(proc, restarts),
                Output::Replaced { node, by } => self.replaced(node, by),
                Output::Signal { group, signal } => self.signal_some(&group, signal),
                Output::CutOff { node, why } => {
                    self.log(&format!("{node} is cut off: {why}"));
                    self.lost(node, &why);
                }
                Output::NodeLost(node) if self.head.is_some() => {
                    self.lost(node, "other nodes do not reach it");
                }
                Output::Orphaned(why) if self.over.is_none() => self.over = Some(Err(why)),
                other => self.engine_reports(other),
            }
        }
    }

    /// Puts a business card where the processes of this node see it.
    fn shelve(&mut self, proc: Proc) {
        let Some(datastore) = self.datastore.as_mut() else { return };
        let ours = self.job.as_ref().is_some_and(|job| job.id() == proc.job);
        if let (true, Some(card)) = (ours, self.engine.known_business_card(proc)) {
            datastore.put(proc.rank, &card);
        }
    }

    /// Lives until it is over.
    fn live(&mut self) {
        while self.over.is_none() {
            self.handle_outputs();
            self.flush();
            if self.over.is_none() {
                self.wait_and_handle(Time::NEVER);
            }
        }
    }

    /// Sends what is left, for a moment, and ends everything.
    fn end(&mut self) {
        let until = self.clock.now().after(Duration::from_secs(1));
        self.listeners.close();
        self.peers.listener = None;
        self.peers.unauthenticated.clear();
        // The others hear of it before anything here is waited for.
        self.handle_outputs();
        self.flush();
        self.kill_ranks();
        let nothing_left = self.end_adopted();
        self.guards.finish(nothing_left);
        self.end_staging();
        self.handle_outputs();
        self.flush();
        let waits = |daemon: &Daemon| daemon.peers.total_backlog() > 0;
        while waits(self) && self.clock.now() < until {
            self.wait_and_handle(until);
            self.flush();
        }
        self.clients.clear();
        self.files.remove();
        self.guards.end();
    }

    fn flush(&mut self) {
        self.flush_clients();
        let failed: Vec<(Node, String)> = self
            .peers
            .connections
            .values_mut()
            .filter_map(|connection| {
                Some((connection.node, connection.frames.flush().err()?.to_string()))
            })
            .collect();
        for (node, why) in failed {
            self.lost(node, &why);
        }
    }

    /// Waits until something happens, and sees to it.
    fn wait_and_handle(&mut self, until: Time) {
        let ready = self.wait(until);
        let now = self.clock.now();
        self.engine.advance(now);
        for source in ready {
            self.see_to(source);
        }
        self.settle_clients(now);
        for late in self.peers.unauthenticated.expire(now) {
            self.log(&format!("refused a connection: {late}"));
        }
        self.settle_ranks(now);
        self.reap_adopted();
        self.look_for_silence();
        self.tell_controller(Controller::time);
    }

    fn see_to(&mut self, source: Source) {
        match source {
            Source::Wakes => {
                for wake in self.wakes.take() {
                    self.woken(wake);
                }
            }
            Source::Clients => self.accept_clients(),
            Source::Unauthenticated => {
                if let Some(why) = self.peers.accept(&mut self.admission, self.clock.now()) {
                    self.log(&why);
                }
            }
            Source::Said => {
                let (daemons, refused) = self.peers.hear();
                for (node, stream) in daemons {
                    self.connected(node, stream);
                }
                for why in refused {
                    self.log(&format!("refused a connection: {why}"));
                }
            }
            Source::Pmix41 => self.accept_pmix41(),
            Source::Client(number) => self.read_client(number),
            // What waits is sent at each turn.
            Source::Drain | Source::Set => {}
            Source::Peer(number) => self.read_peer(number),
            Source::Rank(number) => self.rank_ended(number),
            Source::Out(number) => self.read_output(number, false),
            Source::Err(number) => self.read_output(number, true),
            Source::Feed => self.write_input(),
            Source::Input => self.read_input(),
            Source::Starter => {
                let mut byte = [0; 64];
                match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
                    Ok(len) if len > 0 => {}
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    // From now on the connection with the head node says whether that is there.
                    _ if self.peers.is_up(Node::HEAD) => self.follows_starter = false,
                    _ => {
                        self.over =
                            Some(Err("the process that started this daemon has ended".to_owned()))
                    }
                }
            }
            Source::Guard => self.guard_ended(),
            Source::Remote(node) => self.remote_ended(node),
            Source::ChildEnded => self.subreaper.iter_mut().for_each(Subreaper::hear),
        }
    }

    /// There is a connection to a daemon that has proved to be of this node.
    fn connected(&mut self, node: Node, stream: TcpStream) {
        if let Err(error) = self.peers.up(node, stream) {
            self.lost(node, &error.to_string());
        }
    }

    fn woken(&mut self, wake: Wake) {
        match wake {
            Wake::Dialled(node, Ok(stream)) => self.connected(node, stream),
            Wake::Dialled(Node::HEAD, Err(why)) if self.over.is_none() => {
                self.over = Some(Err(format!("the head node of the job cannot be reached: {why}")));
            }
            Wake::Dialled(node, Err(why)) => self.lost(node, &why),
            Wake::SystemAnswered(node, alive) => self.system_answered(node, alive),
            Wake::Signal(number) if self.head.is_some() => {
                self.tell_controller(|controller, now| controller.signal(now, number));
            }
            Wake::Signal(number) => self.asked_to_end(number),
            Wake::Inventory(found) => {
                self.resources.found(*found);
                self.tell_inventory();
            }
            Wake::Placed(result) => self.placed(result),
            Wake::Printed => {}
            Wake::Unwritten(lost) => {
                self.tell_controller(|controller, now| controller.output_unwritten(now, lost));
            }
        }
    }

    fn read_peer(&mut self, number: u64) {
        let Some(connection) = self.peers.connections.get_mut(&number) else { return };
        let node = connection.node;
        let failed = match connection.frames.fill() {
            Ok(some) => {
                if some {
                    self.heard(node);
                }
                None
            }
            Err(error) => Some(error.to_string()),
        };
        loop {
            let Some(connection) = self.peers.connections.get_mut(&number) else { return };
            match connection.frames.take::<Control>() {
                Ok(Some(what)) => self.control(node, what),
                Ok(None) => break,
                Err(error) => {
                    self.log(&format!("{node} is cut off: {error}"));
                    return self.lost(node, &error.to_string());
                }
            }
        }
        if let Some(why) = failed {
            self.lost(node, &why);
        }
    }
}

/// What clients of the PMIx library have to name, over a port that any process can reach: the name
/// of the job, which is no secret, and what only its ranks learn. It is the same on all nodes.
fn space_of(name: &str, secret: &Secret) -> String {
    let own = derived(secret, b"petasos pmix namespace");
    format!("{name}-{}", hex(&own[..16]))
}

/// The daemon of another host: it is told what it needs over standard input, and ends with that. It
/// has these plug-ins, which are to be those of the launcher.
///
/// # Errors
/// If it cannot begin, or ends before its time; then it has ended its processes.
pub fn run_daemon(plugins: Plugins) -> Result<(), String> {
    let bootstrap = read_bootstrap().map_err(|error| format!("the daemon's input: {error}"))?;
    if bootstrap.version != env!("CARGO_PKG_VERSION") {
        let (own, theirs) = (env!("CARGO_PKG_VERSION"), bootstrap.version);
        return Err(format!("{}: version {own} here, {theirs} at the head node", host_name()));
    }
    if let Some(begin) = plugins.log {
        begin(bootstrap.settings.log.as_deref());
    }
    tracing::debug!(node = bootstrap.node.0, ranks = bootstrap.ranks, "a daemon begins");
    let config = Config { connect: bootstrap.settings.connect, ..Config::default() };
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", host_name());
    let Bootstrap { node, nodes, secret, .. } = bootstrap;
    let daemon = Daemon::new(node, nodes, secret, bootstrap.settings.silence, config);
    let mut daemon = daemon.map_err(|error| named(&error))?;
    daemon.plugins = plugins;
    daemon.ranks.set_reader(bootstrap.settings.input);
    daemon.take_ends().map_err(|error| named(&error))?;
    let begun = daemon.begin(&bootstrap);
    if begun.is_ok() {
        daemon.live();
    }
    let over = daemon.over.clone().unwrap_or(Ok(()));
    daemon.end();
    daemon.leave_remotes();
    begun.map_err(|error| named(&error))?;
    over.map_err(|why| named(&why))
}

fn read_bootstrap() -> io::Result<Bootstrap> {
    let mut input = io::stdin().lock();
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MAX_BOOTSTRAP {
        return Err(io::Error::other("this is no message of the head node"));
    }
    let mut bytes = vec![0; len];
    input.read_exact(&mut bytes)?;
    from_bytes(Encoding::Native, &bytes).map_err(io::Error::other)
}
