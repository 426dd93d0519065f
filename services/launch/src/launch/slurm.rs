//! The hosts that Slurm has allocated, as it says them in the environment, and how programs are
//! started on them.

use super::Host;
use petasos_pmix::server::{MAX_NODES, expand_hosts, host_name};

/// How a program is started on a host of the allocation. It shares the host with what else the job
/// runs there, and may use all of its cores: those that it starts are as much at home there as it
/// is.
const START: [&str; 9] = [
    "srun",
    "--quiet",
    "--overlap",
    "--nodes=1",
    "--ntasks=1",
    "--nodelist={host}",
    "--mpi=none",
    "--cpu-bind=none",
    // The directory of the launcher may not be there; processes go to theirs by themselves.
    "--chdir=/",
];

/// What the resource manager has given to the job that this process is of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Allocation {
    /// The hosts, each with the tasks that were asked for there, or else with its cores.
    pub hosts: Vec<Host>,
    /// Which of them this one is, by name.
    pub here: Option<String>,
    /// How many tasks were asked for, if that was said.
    pub tasks: Option<u32>,
    /// The command that starts a program on one of the hosts, as in
    /// [`Launch::remote`](super::Launch).
    pub start: Vec<String>,
}

impl Allocation {
    fn find(&self, host: &Host) -> Option<&Host> {
        let name = if host.name == "localhost" { self.here.as_ref()? } else { &host.name };
        self.hosts.iter().find(|own| own.name == *name)
    }

    /// Whether all of these hosts are of the allocation.
    #[must_use]
    pub fn has(&self, hosts: &[Host]) -> bool {
        hosts.iter().all(|host| self.find(host).is_some())
    }

    /// Hosts of the allocation as a launch takes them: this one as `localhost`, and each for as
    /// many ranks as is said of it, or else as it has tasks or cores here.
    #[must_use]
    pub fn hosts_of(&self, hosts: Vec<Host>) -> Vec<Host> {
        let own = |host: Host| {
            let slots = host.slots.or_else(|| self.find(&host)?.slots);
            let is_here = self.here.as_ref() == Some(&host.name);
            Host { name: if is_here { "localhost".to_owned() } else { host.name }, slots }
        };
        hosts.into_iter().map(own).collect()
    }
}

/// What the environment says of an allocation makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is an allocation of Slurm whose {variable} makes no sense: `{text}`")]
pub struct AllocationError {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub text: String,
}

/// The allocation of Slurm that this process runs in, if it does.
///
/// # Errors
/// If what is said of it makes no sense.
pub fn allocation() -> Result<Option<Allocation>, AllocationError> {
    let own = host_name();
    find(|name| std::env::var(name).ok().filter(|value| !value.is_empty()), &own)
}

fn find(
    variable: impl Fn(&str) -> Option<String>,
    own: &str,
) -> Result<Option<Allocation>, AllocationError> {
    let bad = |variable, text: &str| AllocationError { variable, text: text.to_owned() };
    let (Some(_), Some(list)) = (variable("SLURM_JOB_ID"), variable("SLURM_JOB_NODELIST")) else {
        return Ok(None);
    };
    let names = expand_hosts(&list).ok_or_else(|| bad("SLURM_JOB_NODELIST", &list))?;
    // In a step of a job these are of the step, for which other hosts and tasks may have been asked
    // for.
    let tasks = variable("SLURM_NTASKS").filter(|_| variable("SLURM_STEP_ID").is_none());
    let tasks = match tasks {
        Some(text) => Some(text.parse().map_err(|_| bad("SLURM_NTASKS", &text))?),
        None => None,
    };
    // Tasks for each node there are always; only sometimes the user asked for them.
    let each = match tasks {
        Some(_) => "SLURM_TASKS_PER_NODE",
        None => "SLURM_JOB_CPUS_PER_NODE",
    };
    let slots = match variable(each) {
        Some(text) => {
            let slots = repeated(&text).filter(|slots| slots.len() == names.len());
            slots.ok_or_else(|| bad(each, &text))?.into_iter().map(Some).collect()
        }
        None => vec![None; names.len()],
    };
    // A node need not be called as its host is. Of the host it may be the first part only.
    let node = variable("SLURMD_NODENAME");
    let short = own.split('.').next().unwrap_or(own);
    let is_own = |name: &String| match &node {
        Some(node) => name == node,
        None => name == own || name == short,
    };
    let here = names.iter().find(|name| is_own(name)).cloned();
    let hosts = names.into_iter().zip(slots);
    Ok(Some(Allocation {
        here,
        hosts: hosts.map(|(name, slots)| Host { name, slots }).collect(),
        tasks,
        start: START.map(str::to_owned).to_vec(),
    }))
}

/// Numbers such as `2(x3),1`.
fn repeated(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (number, times) = match part.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        if times > MAX_NODES || numbers.len() + times > MAX_NODES {
            return None;
        }
        numbers.extend(std::iter::repeat_n(number.parse::<u32>().ok()?, times));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_each_node() {
        assert_eq!(repeated("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(repeated("16"), Some(vec![16]));
        for bad in ["", "x", "2(x", "2(x)", "2x3", "1(x4000000000)", "1,,1"] {
            assert_eq!(repeated(bad), None, "{bad}");
        }
    }

    fn of(variables: &[(&str, &str)]) -> Result<Option<Allocation>, AllocationError> {
        let value = |name: &str| variables.iter().find(|(n, _)| *n == name);
        find(|name| value(name).map(|(_, value)| (*value).to_owned()), "n2.cluster")
    }

    #[test]
    fn the_environment_says_what_was_allocated() {
        assert_eq!(of(&[]), Ok(None));
        let job = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n[1-3]")];
        let cores = ("SLURM_JOB_CPUS_PER_NODE", "4(x2),8");
        let tasks = [("SLURM_NTASKS", "3"), ("SLURM_TASKS_PER_NODE", "1(x3)")];
        let host = |(name, slots): (&str, u32)| Host { name: name.to_owned(), slots: Some(slots) };
        let found = of(&[&job[..], &[cores, ("SLURM_TASKS_PER_NODE", "1(x3)")]].concat());
        let found = found.unwrap().unwrap();
        assert_eq!(found.hosts, [("n1", 4), ("n2", 4), ("n3", 8)].map(host));
        assert_eq!((found.tasks, found.here.as_deref()), (None, Some("n2")));
        let all = found.hosts_of(found.hosts.clone());
        assert_eq!(all, [("n1", 4), ("localhost", 4), ("n3", 8)].map(host));
        // Some of them.
        let given = [("n3", None), ("n2", None), ("n1", Some(1))];
        let given = given.map(|(name, slots)| Host { name: name.to_owned(), slots });
        let expected = [("n3", 8), ("localhost", 4), ("n1", 1)].map(host);
        assert_eq!(found.hosts_of(given.to_vec()), expected);
        assert!(found.has(&given) && found.has(&[host(("localhost", 1))]));
        assert!(!found.has(&[host(("n4", 1))]));
        // A node says what it is called.
        let named = [("SLURMD_NODENAME", "n3"), cores];
        let found = of(&[&job[..], &named, &tasks].concat()).unwrap().unwrap();
        assert_eq!(found.hosts, [("n1", 1), ("n2", 1), ("n3", 1)].map(host));
        assert_eq!((found.tasks, found.here.as_deref()), (Some(3), Some("n3")));
        // A task of a step is told of the step.
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_TASKS_PER_NODE", "1")];
        let found = of(&[&job[..], &named, &step].concat()).unwrap().unwrap();
        assert_eq!(found.hosts, [("n1", 4), ("n2", 4), ("n3", 8)].map(host));
        assert_eq!(found.tasks, None);
        assert!(found.start.contains(&"--nodelist={host}".to_owned()));
        for wrong in [("SLURM_JOB_CPUS_PER_NODE", "4(x2)"), ("SLURM_NTASKS", "many")] {
            let error = of(&[&job[..], &[wrong]].concat()).unwrap_err();
            assert_eq!((error.variable, &*error.text), wrong);
        }
    }
}
