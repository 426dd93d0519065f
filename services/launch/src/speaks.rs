//! The protocols that ranks speak to the daemon of their node.

use petasos_macros::Wire;

/// What the program speaks to its daemon.
#[derive(Wire, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speaks {
    /// PMI-1 if it is linked with MPICH or a descendant, PMIx if with Open MPI; both for any other
    /// one, which may be a script that starts such a program.
    #[default]
    Auto,
    /// This project's own: programs that use [`Job`](petasos_pmix::Job), and those that use
    /// nothing.
    Native,
    /// PMI-1.
    Pmi1,
    /// The wire of OpenPMIx 4.1.
    Pmix,
}

impl Speaks {
    /// As `--wire` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Speaks::Auto => "auto",
            Speaks::Native => "native",
            Speaks::Pmi1 => "pmi1",
            Speaks::Pmix => "pmix",
        }
    }
}

/// Whether a variable says how a process wires up with those that the same launcher started: if
/// another launcher has started this one, its ranks must not take themselves for that launcher's.
pub(crate) fn is_of_a_launcher(name: &str) -> bool {
    let settings = ["PMIX_MCA_", "PMIX_PREFIX"];
    name.starts_with("PMI_")
        || (name.starts_with("PMIX_") && !settings.iter().any(|of| name.starts_with(of)))
}
