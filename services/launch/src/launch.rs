//! Running a job: which rank goes where, and what came of it.

use crate::{
    daemon::{self, Coming, Launched, Plan, Starter, ToStage},
    files::{FileToStage, Files, FilesError},
    hosts::Host,
    outcome::Outcome,
    plugins::{Estimate, FileMover, Plugins},
    settings::Settings,
    speaks::{Speaks, is_of_a_launcher},
};
use petasos_pmix::{Node, job::Run, server::host_name};
use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// How ranks are spread over hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Map {
    /// Host by host: each is filled before the next is begun.
    #[default]
    ByCore,
    /// One on each host in turn.
    ByNode,
}

/// A job to be run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Launch {
    /// How many ranks.
    pub ranks: u32,
    /// The hosts; none: this one.
    pub hosts: Vec<Host>,
    /// How ranks are spread.
    pub map: Map,
    /// Whether hosts take more ranks than they have slots, all alike, where there are more ranks.
    pub oversubscribe: bool,
    /// Where ranks begin, on all hosts; seen from the directory of this process, which it is by
    /// default.
    pub directory: Option<PathBuf>,
    /// Variables that ranks have in their environment beside those of this process, or in their
    /// place.
    pub variables: Vec<(String, String)>,
    /// Whether each rank keeps to a core of its own.
    pub bind: bool,
    /// What the program speaks to its daemon.
    pub speaks: Speaks,
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// How the job is run.
    pub settings: Settings,
    /// A directory on this host for what ranks write: in `rank-N.out` and `rank-N.err`, as it is,
    /// and nothing of it is printed. It is made where it is not there, and files of these names
    /// begin anew. Default: none, and all is printed.
    pub output: Option<PathBuf>,
    /// The command that starts a program on another host: `{host}` stands for its name, which
    /// comes last if it does not stand anywhere. Default: `ssh -x -o BatchMode=yes`.
    pub remote: Vec<String>,
    /// What ranks are to find on their nodes: in a private directory there, which they know by the
    /// variable `PETASOS_STAGE_DIR` and the key `petasos.stage.dir`, and which goes with the job.
    pub files: Vec<FileToStage>,
    /// Whether the program itself is brought to the nodes, and run there.
    pub stage_program: bool,
    /// The directory of each host in which that private one is made. Default: that for temporary
    /// files.
    pub stage_directory: Option<String>,
    /// What is put in.
    pub plugins: Plugins,
}

/// Why a job could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// No ranks.
    #[error("a job has at least one rank")]
    NoRanks,
    /// Not more hosts than spares.
    #[error("{spares} spare hosts, of a list of {hosts}: none is left for ranks")]
    TooFewHosts {
        /// How many were to be kept.
        spares: u32,
        /// How many there are.
        hosts: usize,
    },
    /// A host cannot be a spare.
    #[error("`{0}` cannot be a spare host: it is this one, or is in the list before")]
    NoSpare(String),
    /// Spares, and nothing that would use them.
    #[error(
        "spare hosts are of use where ranks are started again (--restart-failed), or the job goes on without them and a \
         rank can ask (--keep-going)"
    )]
    IdleSpares,
    /// No program.
    #[error("there is no program to run")]
    NoProgram,
    /// Standard input is to go to a rank that there is not.
    #[error("standard input cannot go to rank {rank}: the job has {ranks} of them, from 0 on")]
    NoReader {
        /// Which rank.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// More ranks than the hosts take.
    #[error("{ranks} ranks are more than the {slots} slots of the hosts")]
    TooFewSlots {
        /// How many ranks.
        ranks: u32,
        /// How many there may be.
        slots: u64,
    },
    /// Files that cannot be brought along.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The program is to be brought along, and is not here.
    #[error("{0}: there is no such program here")]
    ProgramNotFound(String),
    /// Files are to be brought along, and nothing does that.
    #[error("no plug-in moves files")]
    NoMover,
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Files that are to be brought to the nodes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Staging {
    /// Which.
    pub files: Arc<Files>,
    /// How long it will take.
    pub estimate: Estimate,
    program: Option<PathBuf>,
    mover: Arc<dyn FileMover>,
}

impl Staging {
    /// The name of the program in the job's directory, if that is one of the files.
    #[must_use]
    pub fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }
}

/// Which ranks go to which host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The hosts, by node: the first is this one.
    pub hosts: Vec<String>,
    /// The last so many of them are spares.
    pub spares: u32,
    /// By rank.
    pub node_of: Vec<Node>,
}

impl Launch {
    /// So many ranks of a program on this host.
    #[must_use]
    pub fn new(ranks: u32, arguments: Vec<String>) -> Launch {
        Launch {
            ranks,
            hosts: Vec::new(),
            map: Map::default(),
            oversubscribe: false,
            directory: None,
            variables: Vec::new(),
            bind: false,
            speaks: Speaks::default(),
            arguments,
            remote: ["ssh", "-x", "-o", "BatchMode=yes"].map(str::to_owned).to_vec(),
            settings: Settings::default(),
            output: None,
            files: Vec::new(),
            stage_program: false,
            stage_directory: None,
            plugins: Plugins::default(),
        }
    }

    /// Which rank would go where.
    ///
    /// # Errors
    /// If there are no ranks, or more than the hosts take, or spare hosts cannot be had.
    pub fn placement(&self) -> Result<Placement, LaunchError> {
        if self.ranks == 0 {
            return Err(LaunchError::NoRanks);
        }
        let mut hosts = vec![host_name()];
        let mut slots: Vec<(Node, u32)> = Vec::new();
        if self.hosts.is_empty() {
            // On one's own host one may ask for more processes than there are cores.
            slots.push((Node::HEAD, self.ranks));
        }
        let Settings { spares: count, keep_going, restart_failed, .. } = self.settings;
        let spares = count as usize;
        let few = LaunchError::TooFewHosts { spares: count, hosts: self.hosts.len() };
        let with_ranks = match self.hosts.len().checked_sub(spares) {
            Some(0) if spares > 0 => return Err(few),
            None => return Err(few),
            Some(with_ranks) => with_ranks,
        };
        if spares > 0 && !keep_going && !restart_failed {
            return Err(LaunchError::IdleSpares);
        }
        for host in &self.hosts[..with_ranks] {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
            let count = host.slots.unwrap_or(cores);
            if host.name == "localhost" || host.name == hosts[0] {
                slots.push((Node::HEAD, count));
                continue;
            }
            let at = hosts.iter().position(|name| *name == host.name).unwrap_or_else(|| {
                hosts.push(host.name.clone());
                hosts.len() - 1
            });
            slots.push((Node(at as u32), count));
        }
        let total: u64 = slots.iter().map(|(_, count)| u64::from(*count)).sum();
        if total == 0 || total < u64::from(self.ranks) && !self.oversubscribe {
            return Err(LaunchError::TooFewSlots { ranks: self.ranks, slots: total });
        }
        let mut node_of = Vec::with_capacity(self.ranks as usize);
        let all = slots.clone();
        while node_of.len() < self.ranks as usize {
            if slots.iter().all(|(_, left)| *left == 0) {
                slots.clone_from(&all);
            }
            for (node, left) in &mut slots {
                let wanted = self.ranks as usize - node_of.len();
                let here = match self.map {
                    Map::ByCore => *left as usize,
                    Map::ByNode => 1.min(*left as usize),
                }
                .min(wanted);
                *left -= here as u32;
                node_of.extend(std::iter::repeat_n(*node, here));
            }
        }
        for Host { name, .. } in &self.hosts[with_ranks..] {
            if name == "localhost" || hosts.contains(name) {
                return Err(LaunchError::NoSpare(name.clone()));
            }
            hosts.push(name.clone());
        }
        Ok(Placement { hosts, spares: count, node_of })
    }

    /// Looks at the files that are to be brought to the nodes, and how long that will take; `None`
    /// if there are none.
    ///
    /// # Errors
    /// If one of them is not there, is no file, would have the name of another, or nothing moves
    /// files; or as [`Launch::placement`].
    pub fn staging(&self) -> Result<Option<Staging>, LaunchError> {
        let mut entries = self.files.clone();
        let mut program = None;
        if self.stage_program {
            let named = self.arguments.first().ok_or(LaunchError::NoProgram)?;
            let found = found(named).ok_or_else(|| LaunchError::ProgramNotFound(named.clone()))?;
            let name = found.file_name().map(PathBuf::from).unwrap_or_default();
            entries.push(FileToStage::new(found, &name)?);
            program = Some(name);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let mover = self.plugins.movers.first().cloned().ok_or(LaunchError::NoMover)?;
        let placement = self.placement()?;
        let mut nodes = placement.node_of;
        let spares = placement.hosts.len() as u32 - placement.spares..placement.hosts.len() as u32;
        nodes.extend(spares.map(Node));
        nodes.sort_unstable();
        nodes.dedup();
        let here = nodes.first() == Some(&Node::HEAD);
        let files = Files::scan(entries)?;
        let estimate = mover.estimate(&files, nodes.len() as u32 - u32::from(here), here);
        Ok(Some(Staging { files: Arc::new(files), estimate, program, mover }))
    }

    /// Runs the job to its end. Takes this process's signals, standard input and output; to be
    /// called before other threads are started. The program that calls it also has to give the
    /// processes that begin with [`GUARD`](crate::GUARD) or [`DAEMON`](crate::DAEMON) to this
    /// crate.
    ///
    /// # Errors
    /// If it could not be begun; what happens to it then is in the [`Outcome`].
    pub fn run(self) -> Result<Outcome, LaunchError> {
        if self.arguments.is_empty() {
            return Err(LaunchError::NoProgram);
        }
        if let Some(rank) = self.settings.input.filter(|rank| *rank >= self.ranks.max(1)) {
            return Err(LaunchError::NoReader { rank, ranks: self.ranks });
        }
        let placement = self.placement()?;
        let staging = self.staging()?;
        let mut runs: Vec<Run> = Vec::new();
        for node in placement.node_of {
            match runs.last_mut() {
                Some(run) if run.node == node => run.count += 1,
                _ => runs.push(Run { node, count: 1 }),
            }
        }
        let here = std::env::current_dir()?;
        let directory = self.directory.as_ref().map_or_else(|| here.clone(), |to| here.join(to));
        let directory = directory.to_string_lossy().into_owned();
        let environment = environment(std::env::vars_os(), &self.variables);
        let plan = Plan {
            hosts: placement.hosts[1..].to_vec(),
            runs,
            program: Launched {
                arguments: self.arguments.clone(),
                directory,
                environment,
                bind: self.bind,
                speaks: self.speaks,
            },
            starter: Starter {
                command: self.remote.clone(),
                program: std::env::current_exe()?.to_string_lossy().into_owned(),
            },
            settings: self.settings.clone(),
            output: self.output.clone(),
            staging: staging.map(|staging| self.stage(staging)).transpose()?,
            plugins: self.plugins.clone(),
        };
        Ok(daemon::run_head(plan)?)
    }

    fn stage(&self, staging: Staging) -> Result<ToStage, LaunchError> {
        let Staging { files, estimate, program, mover } = staging;
        let program = program.map(|name| name.into_os_string().into_string()).transpose();
        let program = program.map_err(|name| FilesError::Name(name.into()))?;
        let directory = self.stage_directory.clone();
        let coming = Coming { mover: mover.name().to_owned(), directory, program };
        Ok(ToStage { files, mover, estimate: estimate.time, coming })
    }
}

/// Where a program is on this host, as a shell would look for it.
fn found(named: &str) -> Option<PathBuf> {
    if named.contains('/') {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|at| at.join(named)).find(|path| path.is_file())
}

/// What goes to the other hosts of the environment, with these besides. What is no text cannot go
/// along.
fn environment(
    own: impl Iterator<Item = (OsString, OsString)>,
    besides: &[(String, String)],
) -> Vec<(String, String)> {
    let own =
        own.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let is_given = |name: &str| besides.iter().any(|(given, _)| given == name);
    let mut all: Vec<_> = own.filter(|(name, _)| travels(name) && !is_given(name)).collect();
    all.extend_from_slice(besides);
    all
}

/// Whether a variable of the environment goes to other hosts: what belongs to this one does not.
fn travels(name: &str) -> bool {
    !["HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "DISPLAY"].contains(&name)
        && !name.starts_with("SSH_")
        && !name.starts_with("PETASOS_JOB")
        && !OF_A_TASK.contains(&name)
        && !is_of_a_launcher(name)
}

/// What Slurm tells a task of itself. Where it starts the daemons, they have their own.
const OF_A_TASK: [&str; 9] = [
    "SLURMD_NODENAME",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_GTIDS",
    "SLURM_TASK_PID",
    "SLURM_CPUS_ON_NODE",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_TOPOLOGY_ADDR_PATTERN",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::parse_hosts;

    fn nodes(ranks: u32, hosts: &str, map: Map) -> Result<Vec<u32>, String> {
        let hosts = parse_hosts(hosts).unwrap();
        let launch = Launch { hosts, map, ..Launch::new(ranks, vec!["x".into()]) };
        let placed = launch.placement().map_err(|error| error.to_string())?;
        Ok(placed.node_of.into_iter().map(|node| node.0).collect())
    }

    #[test]
    fn what_belongs_to_this_process_stays_here() {
        let here = ["TMPDIR", "PMI_FD", "PMI_SIZE", "PMIX_NAMESPACE", "PMIX_SERVER_URI41"];
        assert!(!here.iter().chain(&["SLURM_PROCID", "SSH_TTY"]).any(|name| travels(name)));
        let there =
            ["PATH", "PMIX_MCA_ptl_base_verbose", "SLURM_JOB_ID", "MPIR_CVAR_DEBUG_SUMMARY"];
        assert!(there.iter().all(|name| travels(name)));
        // Of what is given, all goes; what is no text does not, and harms nothing.
        let own = [("PATH", "/bin"), ("TMPDIR", "/here"), ("A", "1")];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let text = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
        let own = own.into_iter().chain([("B".into(), text)]);
        let given = [("TMPDIR", "/there"), ("A", "2"), ("A", "3")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let all = environment(own, &given);
        let all: Vec<String> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(all, ["PATH=/bin", "TMPDIR=/there", "A=2", "A=3"]);
    }

    #[test]
    fn ranks_are_placed() {
        assert_eq!(nodes(5, "a:2,b:3", Map::ByCore).unwrap(), [1, 1, 2, 2, 2]);
        assert_eq!(nodes(5, "a:2,b:3", Map::ByNode).unwrap(), [1, 2, 1, 2, 2]);
        assert_eq!(nodes(3, "localhost:1,b:2", Map::ByCore).unwrap(), [0, 1, 1]);
        assert_eq!(nodes(3, "a:1,b:1,a:1", Map::ByCore).unwrap(), [1, 2, 1]);
        assert!(nodes(6, "a:2,b:3", Map::ByNode).unwrap_err().contains("6 ranks"));
        // More than they have slots: each as many again.
        let more = |ranks, map| {
            let hosts = parse_hosts("a:2,b:1").unwrap();
            let launch = Launch { hosts, map, oversubscribe: true, ..Launch::new(ranks, vec![]) };
            launch.placement().unwrap().node_of.into_iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert_eq!(more(3, Map::ByCore), [1, 1, 2]);
        assert_eq!(more(8, Map::ByCore), [1, 1, 2, 1, 1, 2, 1, 1]);
        assert_eq!(more(5, Map::ByNode), [1, 2, 1, 1, 2]);
        let none = Launch {
            hosts: parse_hosts("a:0").unwrap(),
            oversubscribe: true,
            ..Launch::new(1, vec![])
        };
        assert!(matches!(none.placement(), Err(LaunchError::TooFewSlots { .. })));
        let here = Launch::new(700, vec!["x".into()]).placement().unwrap();
        assert_eq!((here.hosts.len(), here.node_of.len()), (1, 700));
        assert!(matches!(Launch::new(0, vec![]).placement(), Err(LaunchError::NoRanks)));
    }
}
