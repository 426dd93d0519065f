//! Detection of another launcher that started this process, and how to reach its server.

use super::{JobError, pmi1, pmix};

/// The launcher of this process, as the environment describes it.
#[derive(Debug)]
pub(super) enum Found {
    Pmix(pmix::Setting),
    Pmi1(pmi1::Setting),
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
        return Ok(Some(Found::Pmix(pmix::Setting {
            uris,
            rank,
            security: variable("PMIX_SECURITY_MODE"),
            events: match () {
                () if space.starts_with("slurm.pmix.") => pmix::Events::Nowhere,
                () if of_open_mpi_4.iter().any(|name| variable(name).is_some()) => {
                    pmix::Events::WithinNode
                }
                () => pmix::Events::Anywhere,
            },
            space,
        })));
    }
    let transport = match (number("PMI_FD")?, variable("PMI_PORT")) {
        (Some(fd), _) => pmi1::Transport::Descriptor(fd as i32),
        (None, Some(port)) => pmi1::Transport::Port(port),
        (None, None) => return Ok(None),
    };
    let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
    let id = number("PMI_ID")?;
    Ok(Some(Found::Pmi1(pmi1::Setting { transport, rank, size, id })))
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
        assert_eq!(events("prterun-1@1", "PATH"), pmix::Events::Anywhere);
        assert_eq!(events("1234", "OMPI_COMMAND"), pmix::Events::WithinNode);
        assert_eq!(events("slurm.pmix.5.0", "PATH"), pmix::Events::Nowhere);
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
