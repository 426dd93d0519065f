//! Detection of another launcher that started this process, and how to reach its server.

use super::JobError;

/// The commits of each rank of a job of another launcher that have its address, and nothing of its
/// program's.
pub(super) const ENDPOINT_COMMITS: u64 = 1;

/// What the environment says about a PMIx server.
#[derive(Clone, Debug)]
pub(super) struct PmixSetting {
    /// The variables that lead to the server.
    pub(super) uris: Vec<String>,
    pub(super) space: String,
    pub(super) rank: u32,
    /// Ways to authenticate that the server takes.
    pub(super) security: Option<String>,
    pub(super) events: EventSupport,
}

/// How far a server carries events of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventSupport {
    Anywhere,
    /// It hangs on events for other nodes: the server of Open MPI 4.
    WithinNode,
    /// It takes each event for a failure, and ends the job: the server of Slurm.
    Nowhere,
}

/// How a launcher that speaks PMI-1 is reached.
#[derive(Clone, Debug)]
pub(super) enum Transport {
    /// Over a descriptor that this process inherited.
    Descriptor(i32),
    /// At `host:port`.
    Port(String),
}

/// What the environment says about a launcher that speaks PMI-1.
#[derive(Clone, Debug)]
pub(super) struct Pmi1Setting {
    pub(super) transport: Transport,
    pub(super) rank: Option<u32>,
    pub(super) size: Option<u32>,
    /// The rank of this process, at the server to which it connects.
    pub(super) id: Option<u32>,
}

/// The launcher of this process, as the environment describes it.
#[derive(Debug)]
pub(super) enum Found {
    Pmix(PmixSetting),
    Pmi1(Pmi1Setting),
}

/// The launcher of this process, if the variables of one are set.
///
/// # Errors
/// If they are set and invalid.
pub(super) fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Found>, JobError> {
    let number = |name: &str| match variable(name) {
        Some(text) => text.parse().map(Some).map_err(|_| bad(name, &text)),
        None => Ok(None),
    };
    // A server's formats are those of the newest URI that it names.
    let uris = ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2"];
    let uris: Vec<String> = uris.iter().filter_map(|name| variable(name)).collect();
    if let (Some(space), Some(rank), false) =
        (variable("PMIX_NAMESPACE"), number("PMIX_RANK")?, uris.is_empty())
    {
        if space.is_empty() || space.len() > 255 {
            return Err(bad("PMIX_NAMESPACE", &space));
        }
        let of_open_mpi_4 =
            ["OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_ess_num_procs", "OMPI_COMMAND"];
        return Ok(Some(Found::Pmix(PmixSetting {
            uris,
            rank,
            security: variable("PMIX_SECURITY_MODE"),
            events: match () {
                () if space.starts_with("slurm.pmix.") => EventSupport::Nowhere,
                () if of_open_mpi_4.iter().any(|name| variable(name).is_some()) => {
                    EventSupport::WithinNode
                }
                () => EventSupport::Anywhere,
            },
            space,
        })));
    }
    let transport = match (number("PMI_FD")?, variable("PMI_PORT")) {
        (Some(fd), _) => Transport::Descriptor(fd as i32),
        (None, Some(port)) => Transport::Port(port),
        (None, None) => return Ok(None),
    };
    let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
    let id = number("PMI_ID")?;
    Ok(Some(Found::Pmi1(Pmi1Setting { transport, rank, size, id })))
}

fn bad(name: &str, text: &str) -> JobError {
    JobError::BadJobFile(format!("the variable {name}"), format!("`{text}` makes no sense"))
}

/// A job's name for use in an address: other characters replaced, and shortened.
pub(super) fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-+=".contains(c) { c } else { '-' };
    let short: String = name.chars().map(plain).collect();
    // The end distinguishes jobs of one launcher, and the beginning has the launcher's number.
    match short.len() {
        0..=40 => short,
        len => format!("{}{}", &short[..20], &short[len - 20..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Found>, JobError> {
        find(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn the_environment_names_the_launcher() {
        assert!(of(&[]).unwrap().is_none());
        let uri = "1.0;tcp4://127.0.0.1:4711";
        let pmix = [("PMIX_NAMESPACE", "1"), ("PMIX_RANK", "3"), ("PMIX_SERVER_URI4", uri)];
        assert!(matches!(of(&pmix).unwrap(), Some(Found::Pmix(s)) if s.rank == 3));
        let events = |space: &str, more: &str| {
            let space = ("PMIX_NAMESPACE", space);
            match of(&[space, pmix[1], pmix[2], (more, "x")]).unwrap() {
                Some(Found::Pmix(setting)) => setting.events,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(events("prterun-1@1", "PATH"), EventSupport::Anywhere);
        assert_eq!(events("1234", "OMPI_COMMAND"), EventSupport::WithinNode);
        assert_eq!(events("slurm.pmix.5.0", "PATH"), EventSupport::Nowhere);
        // Without a server it is not PMIx.
        assert!(of(&pmix[..2]).unwrap().is_none());
        let pmi1 = [("PMI_FD", "5"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")];
        assert!(matches!(of(&pmi1).unwrap(), Some(Found::Pmi1(s)) if s.size == Some(2)));
        assert!(of(&[("PMI_FD", "x")]).is_err());
        assert!(of(&[("PMIX_NAMESPACE", ""), pmix[1], pmix[2]]).is_err());
    }

    #[test]
    fn names_become_plain() {
        assert_eq!(plain("prterun-host-12@1"), "prterun-host-12-1");
        assert_eq!(plain(&"x".repeat(300)).len(), 40);
        assert_eq!(plain("ä"), "-");
    }
}
