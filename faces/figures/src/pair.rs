//! The two processes of a measurement: a server of the command's own, and this one, which calls it.

use crate::{
    bare::{self, End},
    channel::{Channel, Open},
    client,
    exit::{Code, Failure, Outcome},
    limits::Plan,
    server::{Order, Server},
    service::BenchClient,
    waiting::Waiting,
};
use petasos::{Engine, fabric::Address};
use std::{
    ops::Deref,
    path::{Path, PathBuf},
    time::Duration,
};

/// A server somewhere, and an engine here that calls it.
pub struct ServerConnection {
    pub engine: Engine,
    pub address: Address,
}

/// A server process of this command's own, and an engine here that calls it.
pub struct Pair {
    // Dropped in this order: the engine says good-bye before the server goes.
    connection: ServerConnection,
    pub server: Server,
}

impl Deref for Pair {
    type Target = ServerConnection;
    fn deref(&self) -> &ServerConnection {
        &self.connection
    }
}

/// What a pair is made of.
pub struct Setting<'a> {
    pub transport: &'static petasos::Transport,
    pub waiting: Waiting,
    pub plan: &'a Plan,
    pub secret: &'a Path,
    pub store: Option<PathBuf>,
    pub scratch: &'a Path,
    /// The one channel to be measured.
    pub channel: Option<&'static Channel>,
    /// From how many bytes on arguments and results are lent, if not as usual.
    pub lend_above: Option<usize>,
    /// Engines of the server, with a thread and an address each.
    pub engines: usize,
}

impl Setting<'_> {
    fn order(&self, bare: bool) -> Order {
        Order {
            url: self.transport.any.to_owned(),
            secret: Some(self.secret.to_owned()),
            waiting: self.waiting,
            core: self.plan.cores.server,
            store: self.store.clone(),
            channel: self.channel.map(|channel| channel.name.to_owned()),
            lend_above: self.lend_above,
            bare,
            alone: self.plan.cores.alone(),
            engines: self.engines,
        }
    }

    fn open(&self) -> Open {
        self.channel.map_or(petasos::open, |channel| channel.open)
    }

    /// Starts a server on its core.
    pub fn server(&self, bare: bool) -> Outcome<(Server, Address)> {
        let server = Server::start(&self.order(bare), self.scratch)?;
        let address = address(&server)?;
        Ok((server, address))
    }

    /// Starts a server, and connects to it.
    pub fn pair(&self) -> Outcome<Pair> {
        Pair::start(self)
    }

    /// Starts a server without calls, and connects to it.
    pub fn bare(&self) -> Outcome<(bare::Client, Server)> {
        let (server, _) = self.server(true)?;
        Ok((self.bare_to(&server)?, server))
    }

    /// Connects to a server without calls.
    pub fn bare_to(&self, server: &Server) -> Outcome<bare::Client> {
        let address = address(server)?;
        let endpoint = client::endpoint(self.open(), &address, Some(self.secret))?;
        let end = End::new(endpoint, self.plan.cores.alone());
        bare::Client::connect(end, &address)
    }
}

fn address(server: &Server) -> Outcome<Address> {
    Address::parse(server.url()).map_err(Failure::system("the URL that the server process gave"))
}

impl ServerConnection {
    /// The service that is measured.
    pub fn bench(&self) -> BenchClient {
        BenchClient::new(&self.engine, &self.address)
    }
}

impl Pair {
    /// Starts the server on its core.
    pub fn start(setting: &Setting<'_>) -> Outcome<Pair> {
        let (server, address) = setting.server(false)?;
        let patience = Duration::from_secs(10);
        let secret = Some(setting.secret);
        let mut config = setting.waiting.config();
        config.lend_above = setting.lend_above;
        let engine = client::engine_over(setting.open(), &address, secret, config, patience)?;
        Ok(Pair { connection: ServerConnection { engine, address }, server })
    }

    /// Works while the server does not take a core: on a limit of the machine, say.
    pub fn frozen<T>(&self, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let _frozen = self.server.freeze()?;
        work()
    }

    /// A failure, with what became of the server.
    pub fn explain(&mut self, failure: Failure) -> Failure {
        match self.server.ended() {
            Some(status) => {
                let pid = self.server.pid();
                let said = format!("{failure}").lines().next().unwrap_or_default().to_owned();
                let text = format!("the server process {pid} ended ({status}): {said}");
                Failure::new(Code::Unreachable, text)
                    .advise("run it again; if it ends again, look for its own message above")
            }
            None => failure,
        }
    }
}
