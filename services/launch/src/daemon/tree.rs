//! How the daemons of other hosts are started: by the head node those right below it in a tree, and
//! by each of these the ones below it. All of them then tell the head node directly that they are
//! there, and send it what their processes write.
//!
//! Until it is connected with the head node, a daemon ends with the process that started it: the
//! kernel sees to that for the start command, and what that has started on another host loses its
//! standard input. Later it ends with that connection. So when a daemon dies, those that it started
//! live on.

use super::{
    Daemon,
    child::{First, Process, Spawner, Streams, beyond_streams, has_terminal, pipe},
    control::{Bootstrap, Control},
    image::{Image, why_not},
    peers::is_ready,
};
use petasos_macros::Wire;
use petasos_pmix::Node;
use petasos_wire::{Encoding, to_vec};
use rustix::{
    event::PollFlags,
    process::{Pid, Rlimit, Signal, getpid, kill_process},
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, PipeWriter, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

/// How long daemons get to go.
const LEAVE: Duration = Duration::from_secs(3);
/// How long the start commands of those get that are lost: what such a command talks to may not be
/// there any more.
const LEAVE_LOST: Duration = Duration::from_millis(300);
/// So much always fits a pipe.
const SHORT: usize = 32 << 10;

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

/// A start command that runs.
#[derive(Debug)]
pub(crate) struct Remote {
    process: Process,
    pidfd: OwnedFd,
    input: Option<PipeWriter>,
    ended: bool,
}

/// Which node starts the daemon of another. That of the head node is started by none.
pub(crate) fn parent(node: Node, fan_out: u32) -> Node {
    Node(node.0.saturating_sub(1).checked_div(fan_out).unwrap_or_default())
}

/// Those of the daemons below a node that it starts itself, each with those that are below that
/// one.
fn branches(me: Node, below: Vec<Planned>, fan_out: u32) -> Vec<(Planned, Vec<Planned>)> {
    let mut found: BTreeMap<Node, Vec<Planned>> = BTreeMap::new();
    for planned in below {
        let mut top = planned.node;
        while top != Node::HEAD && parent(top, fan_out) != me {
            top = parent(top, fan_out);
        }
        if top != Node::HEAD {
            found.entry(top).or_default().push(planned);
        }
    }
    let split = |(top, mut all): (Node, Vec<Planned>)| {
        let at = all.iter().position(|planned| planned.node == top)?;
        Some((all.remove(at), all))
    };
    found.into_iter().filter_map(split).collect()
}

impl Daemon {
    /// Starts what is right below this daemon. `own` is what it was told itself.
    pub(super) fn start_daemons(&mut self, own: &Bootstrap) {
        for (planned, below) in branches(self.me, own.below.clone(), own.settings.fan_out) {
            let Planned { node, host, ranks } = planned;
            let told = Bootstrap { node, ranks, below, ..own.clone() };
            match self.start_daemon(&own.starter, &host, &told) {
                Ok(remote) => drop(self.remotes.insert(node, remote)),
                Err(error) => {
                    let command = own.starter.command.first().map_or("", String::as_str);
                    let path = std::env::var_os("PATH");
                    let why = why_not(command, path.as_deref(), Path::new(""), &error);
                    let why = format!("starting it by `{command}`: {why}");
                    self.report(Control::NotStarted { node, why });
                }
            }
            if self.over.is_some() {
                return;
            }
        }
    }

    fn start_daemon(&self, starter: &Starter, host: &str, told: &Bootstrap) -> io::Result<Remote> {
        start(starter, host, told, self.started_by(), self.admission.files.before)
    }

    /// Whether a child of this process is one.
    pub(super) fn is_start_command(&self, pid: Pid) -> bool {
        self.remotes.values().any(|remote| !remote.ended && remote.process.pid == pid)
    }

    /// The start commands that run.
    pub(super) fn running_remotes(&self) -> impl Iterator<Item = (Node, &OwnedFd)> {
        let running = self.remotes.iter().filter(|(_, remote)| !remote.ended);
        running.map(|(node, remote)| (*node, &remote.pidfd))
    }

    /// The start command of a host ended.
    pub(super) fn remote_ended(&mut self, node: Node) {
        let Some(remote) = self.remotes.get_mut(&node) else { return };
        remote.ended = true;
        let status = remote.process.wait();
        let why = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        self.report(Control::NotStarted { node, why });
    }

    /// Of those that started the daemon of a node, one above the other, the highest that has just
    /// ended, as far as can be seen from here: those below it end for that, and may be heard of
    /// first.
    pub(super) fn ended_above(&self, node: Node, fan_out: u32) -> Option<Node> {
        let above = |node: &Node| Some(parent(*node, fan_out)).filter(|node| *node != Node::HEAD);
        let has_ended = |node: &Node| {
            let remote = self.remotes.get(node).filter(|remote| !remote.ended);
            self.peers.has_ended(*node)
                || remote.is_some_and(|remote| is_ready(remote.pidfd.as_fd(), PollFlags::IN))
        };
        std::iter::successors(above(&node), above).filter(has_ended).last()
    }

    /// In the end: those that this daemon started go, or are made to.
    pub(super) fn leave_remotes(&mut self) {
        let begun = self.clock.now();
        let mut left = std::mem::take(&mut self.remotes);
        left.retain(|_, remote| !remote.ended);
        left.values_mut().for_each(|remote| drop(remote.input.take()));
        for (node, remote) in left {
            let lost = self.engine.lost().contains(&node);
            let until = begun.after(if lost { LEAVE_LOST } else { LEAVE });
            while remote.process.try_wait().is_ok_and(|status| status.is_none()) {
                if self.clock.now() >= until {
                    let _ = kill_process(remote.process.pid, Signal::KILL);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// `besides`: what the start command has in its environment beside that of this process.
fn start(
    starter: &Starter,
    host: &str,
    bootstrap: &Bootstrap,
    besides: (&OsStr, &OsStr),
    files: Rlimit,
) -> io::Result<Remote> {
    let mut words: Vec<String> =
        starter.command.iter().map(|word| word.replace("{host}", host)).collect();
    if !starter.command.iter().any(|word| word.contains("{host}")) {
        words.push(host.to_owned());
    }
    words.push(starter.program.clone());
    words.push(super::DAEMON.to_owned());
    let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    environment.insert(besides.0.into(), besides.1.into());
    let image = Image::new(&words, &environment, None)?;
    let ((theirs, input), nothing) = (pipe()?, File::options().write(true).open("/dev/null")?);
    let nothing = beyond_streams(nothing.into())?;
    let streams =
        Streams { input: Some(theirs.as_fd()), output: Some(nothing.as_fd()), errors: None };
    // It ends with this process, but for `srun`: where that is killed, Slurm kills all that it has
    // started, and the daemon's guard with the daemon, before they have cleaned up. It ends by
    // itself when the daemon does, whose input ends with this process.
    let ends = !words.first().is_some_and(|word| Path::new(word).ends_with("srun"));
    // In a group of its own, as the terminal's signals are for the head node.
    let files = Some(files);
    let (guard, cores, inherited, session) = (None, None, None, has_terminal());
    let first = First { daemon: getpid(), ends, guard, cores, session, files, inherited };
    let process = Spawner::new().spawn(&image, &[], streams, &first)?;
    drop(theirs);
    let pidfd = process.pidfd()?;
    let bytes = to_vec(Encoding::Native, bootstrap);
    let bytes = [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat();
    let short = bytes.len() <= SHORT;
    let told = File::from(input.as_fd().try_clone_to_owned()?);
    // If it cannot be told, it ends, and that is noticed.
    let tell = move || drop((&told).write_all(&bytes));
    if short {
        tell();
    } else {
        // A command that does not read holds up no other.
        std::thread::Builder::new().name("start".to_owned()).spawn(tell)?;
    }
    // It ends with its standard input.
    Ok(Remote { process, pidfd, input: Some(input), ended: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(nodes: impl IntoIterator<Item = u32>) -> Vec<Planned> {
        let one = |node| Planned { node: Node(node), host: format!("h{node}"), ranks: node };
        nodes.into_iter().map(one).collect()
    }

    /// All that are started in the end, by the number of steps from the head node.
    fn all(
        me: Node,
        below: Vec<Planned>,
        fan_out: u32,
        depth: u32,
        found: &mut BTreeMap<u32, u32>,
    ) {
        let branches = branches(me, below, fan_out);
        assert!(fan_out == 0 || branches.len() <= fan_out as usize);
        for (top, below) in branches {
            assert_eq!(parent(top.node, fan_out), me);
            assert_eq!(found.insert(top.node.0, depth), None, "{} is started twice", top.node);
            all(top.node, below, fan_out, depth + 1, found);
        }
    }

    #[test]
    fn each_daemon_is_started_once() {
        for (nodes, fan_out, deepest) in
            [(0, 16, 0), (1, 16, 1), (16, 16, 1), (17, 16, 2), (6, 2, 2), (7, 1, 7), (900, 0, 1)]
        {
            let mut found = BTreeMap::new();
            all(Node::HEAD, planned(1..=nodes), fan_out, 1, &mut found);
            assert_eq!(found.len() as u32, nodes);
            assert_eq!(found.into_values().max().unwrap_or_default(), deepest, "{nodes} {fan_out}");
        }
    }

    #[test]
    fn what_is_not_below_is_not_started() {
        // 3 and 4 are below 1, and no other is.
        let branches = branches(Node(1), planned([3, 4, 5, 2, 0, 1]), 2);
        assert_eq!(branches.iter().map(|(top, _)| top.node.0).collect::<Vec<_>>(), [3, 4]);
        assert!(branches.iter().all(|(_, below)| below.is_empty()));
    }
}
