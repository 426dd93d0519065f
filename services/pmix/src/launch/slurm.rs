//! The hosts that Slurm has allocated, as it says them in the environment, and how programs are
//! started on them.

use super::Host;
use crate::daemon;

/// More nodes than any machine has.
pub(super) const MAX_NODES: usize = 1 << 17;
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
    let own = daemon::host_name();
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
    let names = expand(&list).ok_or_else(|| bad("SLURM_JOB_NODELIST", &list))?;
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

/// The hosts of the step that this process is a task of, by what Slurm calls them.
pub(crate) fn hosts_of_step() -> Option<Vec<String>> {
    expand(&std::env::var("SLURM_STEP_NODELIST").ok()?)
}

/// The names of a list such as `a,n[1-3,07-10]x,r[0-1]n[0-1]`.
fn expand(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for word in words(list)? {
        names.extend(product(word)?);
        if names.len() > MAX_NODES {
            return None;
        }
    }
    // They go on a command line: none may look like an option, or be more than a name.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name =
        |name: &String| !name.is_empty() && !name.starts_with('-') && name.chars().all(plain);
    names.iter().all(is_name).then_some(names)
}

/// The words of a list, between commas that are in no brackets.
pub(super) fn words(list: &str) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    let (mut depth, mut from) = (0, 0);
    for (at, letter) in list.char_indices().chain([(list.len(), ',')]) {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                words.push(list[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return None;
        }
    }
    (depth == 0).then_some(words)
}

/// The names of one word, whose brackets each stand for several numbers: `n[1-3,07-10]x`.
pub(super) fn product(word: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = word.split_once('[') else { return Some(vec![word.to_owned()]) };
    let (numbers, after) = rest.split_once(']')?;
    let numbers = range(numbers)?;
    let after = product(after)?;
    if numbers.len().saturating_mul(after.len()) > MAX_NODES {
        return None;
    }
    let name = |number: &String| {
        let number = number.clone();
        after.iter().map(move |after| format!("{before}{number}{after}"))
    };
    Some(numbers.iter().flat_map(name).collect())
}

/// Numbers such as `1-3,07-10`, each as wide as the first of its range.
fn range(text: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let width = first.len();
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || (last - first) as usize + numbers.len() >= MAX_NODES {
            return None;
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
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
    fn lists_of_nodes() {
        let of = |list: &str| expand(list).map(|names| names.join(" "));
        assert_eq!(of("a").unwrap(), "a");
        assert_eq!(of("a,n[1-3,07-10],b-x.y").unwrap(), "a n1 n2 n3 n07 n08 n09 n10 b-x.y");
        assert_eq!(of("r[0-1]n[8,9]x").unwrap(), "r0n8x r0n9x r1n8x r1n9x");
        assert_eq!(expand("n[1-100000]").unwrap().len(), 100_000);
        for bad in [
            "",
            "a,",
            "n[1-",
            "n]1[",
            "n[[1]]",
            "n[a]",
            "n[2-1]",
            "-w",
            "a b",
            "n[0-4000000000]",
            "n[0-99999]x[0-99999]",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

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
