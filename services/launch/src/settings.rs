use petasos_macros::Wire;
use std::time::Duration;

/// How a job is run: the same for its controller and for the daemons of all nodes.
#[derive(Wire, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// How many other daemons a daemon starts: where there are more hosts, those that are started
    /// start others. 0: this process starts all. Default: 16.
    pub fan_out: u32,
    /// Whether each line of output begins with its rank.
    pub labels: bool,
    /// The rank that standard input goes to, if any: the others find theirs at its end. Default: 0.
    pub input: Option<u32>,
    /// Whether the others go on when a rank fails.
    pub keep_going: bool,
    /// How often a rank that failed may be started again, where the job goes on then. Default: 3.
    pub restarts: u32,
    /// Whether ranks that fail are started again without a request; only when one has been so as
    /// often as it may be, the job fails, or goes on without it if it is to.
    pub restart_failed: bool,
    /// So many hosts, the last in the list, get a daemon and no ranks: each takes the place of one
    /// that is lost, with its ranks, without a request (`restart_failed`) or when a rank asks
    /// (`keep_going`). Default: 0.
    pub spares: u32,
    /// How long the job may take.
    pub timeout: Option<Duration>,
    /// How long after the first rank all others must have connected. Default: 60 s.
    pub connect: Duration,
    /// How long a host may be silent, without any end of its connections, before it is declared
    /// lost; at least 100 ms. It is not while its system answers, whatever its processes do. Zero:
    /// only the kernel watches, for 5 s, as it does where a host's system cannot be asked. Default:
    /// 1 s.
    pub silence: Duration,
    /// Before the ranks start it is measured how long messages between the nodes take: job data
    /// then has it, under `petasos.inventory.links`, in jobs of up to 1,024 nodes.
    pub measure_links: bool,
    /// What the daemons on other hosts log, in the words of [`Plugins::log`](crate::Plugins::log)
    /// there.
    pub log: Option<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            fan_out: 16,
            labels: false,
            input: Some(0),
            keep_going: false,
            restarts: 3,
            restart_failed: false,
            spares: 0,
            timeout: None,
            connect: Duration::from_secs(60),
            silence: Duration::from_secs(1),
            measure_links: false,
            log: None,
        }
    }
}

impl Settings {
    /// How often a rank may be restarted; `None`: never, as the job ends when one fails.
    pub(crate) fn restarts_allowed(&self) -> Option<u32> {
        (self.keep_going || self.restart_failed).then_some(self.restarts)
    }
}
