//! What the daemon of the head node and the others say to each other beside what engines do.

use crate::{message::Message, settings::Settings, speaks::Speaks};
use petasos_macros::Wire;
use petasos_pmix::{Node, Termination, job::JobSpec};

/// What a started daemon reads first, from its standard input: no other process sees it.
#[derive(Wire, Clone, Debug)]
pub(crate) struct Bootstrap {
    pub(crate) version: String,
    pub(crate) secret: [u8; 32],
    pub(crate) node: Node,
    pub(crate) nodes: u32,
    /// How many processes it will have.
    pub(crate) ranks: u32,
    /// Whether no other daemon will have any.
    pub(crate) alone: bool,
    /// Where the head node may be reached: `IP:PORT`, to be tried in turn.
    pub(crate) head: Vec<String>,
    pub(crate) settings: Settings,
    /// How it starts others.
    pub(crate) starter: Starter,
    /// Those that it starts, and those that these start.
    pub(crate) below: Vec<Planned>,
}

/// A daemon that is to be started.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) node: Node,
    /// By the name that the start command takes.
    pub(crate) host: String,
    /// How many processes it will have.
    pub(crate) ranks: u32,
}

/// How daemons are started.
#[derive(Wire, Clone, Debug)]
pub(crate) struct Starter {
    /// The command that starts a program on another host; `{host}` stands for its name.
    pub(crate) command: Vec<String>,
    /// The program on the other hosts.
    pub(crate) program: String,
}

/// What daemons are told of files that will come.
#[derive(Wire, Clone, Debug, PartialEq)]
pub(crate) struct Coming {
    /// Which plug-in brings them.
    pub(crate) mover: String,
    /// Where each node has its directory; none: where it has temporary files.
    pub(crate) directory: Option<String>,
    /// The file that is the program.
    pub(crate) program: Option<String>,
}

/// What each network says, by its name.
pub(crate) type Said = Vec<(String, Vec<u8>)>;

/// How the processes of a node are to run.
#[derive(Wire, Clone, Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) arguments: Vec<String>,
    pub(crate) directory: String,
    pub(crate) environment: Vec<(String, String)>,
    /// Whether each gets a core of its own.
    pub(crate) bind: bool,
    /// What they speak to the daemon.
    pub(crate) speaks: Speaks,
}

/// All that a daemon needs to know.
#[derive(Wire, Clone, Debug, PartialEq)]
pub(crate) struct Setup {
    pub(crate) job: JobSpec,
    pub(crate) program: Program,
    /// Where the daemons are reached.
    pub(crate) daemons: Vec<(Node, String)>,
    /// What each network needs to set up its part on a node.
    pub(crate) blobs: Said,
    /// The last so many nodes have no ranks now, and may get those of one that is lost.
    pub(crate) spares: u32,
    /// Files that will be brought to the nodes.
    pub(crate) coming: Option<Coming>,
}

/// From daemon to daemon.
#[derive(Wire, Clone, Debug, PartialEq)]
pub(crate) enum Control {
    Engine(Message),
    /// To the head node: this daemon is there. Its address, its port, what networks offer for its
    /// processes.
    Hello {
        host: String,
        port: u16,
        offers: Said,
    },
    /// To the head node: the daemon of this node could not be started, or its start command has
    /// ended, and why.
    NotStarted {
        node: Node,
        why: String,
    },
    /// Where the other daemons are reached, where they are to be before [`Control::Setup`] says it.
    Others(Vec<(Node, String)>),
    Setup(Box<Setup>),
    /// To the head node: processes can be started, and files taken there (empty: none are); or not,
    /// and why.
    Prepared(Result<Vec<u8>, String>),
    /// From the head node: all are ready, and watch their neighbours from now on, while files come.
    Watch,
    Start,
    /// To the head node: a process wrote something.
    Output {
        rank: u32,
        error: bool,
        bytes: Vec<u8>,
    },
    /// From the head node: so many bytes of output were taken.
    OutputTaken(u64),
    /// From the head node, for the rank that reads input; empty: the end.
    Input(Vec<u8>),
    /// To the head node: so many bytes were taken.
    InputTaken(u64),
    /// To the head node: a process ended, and all that it wrote was sent.
    Ended {
        rank: u32,
        /// How often its rank had been started again.
        restarts: u32,
        /// Whether it had finalized, so that it is not started again whatever became of it.
        finalized: bool,
        why: Termination,
    },
    /// From the head node, to all processes.
    Signal(i32),
    /// From the head node: it is over.
    Bye,
}
