//! What is available, for `petasos info`.

use crate::{
    LoadError, OpenError,
    kinds::{Kind, Reach, kinds},
    net::Context,
    sys::library::library,
};

/// Loads the library, if it is not loaded yet, and returns its version and its file.
///
/// # Errors
/// UCX is not installed, or its version is not supported.
pub fn find() -> Result<String, LoadError> {
    let library = library()?;
    Ok(format!("UCX {} ({})", library.version_text(), library.path()))
}

/// The library, and what each kind of address can do here, or why it cannot be used: a line each.
#[must_use]
pub fn probe() -> Vec<String> {
    let found = match find() {
        Ok(found) => found,
        Err(error) => return vec![error.to_string()],
    };
    let mut lines = vec![found];
    lines.extend(kinds().iter().map(line));
    lines.push(
        "exposure: unauthenticated peers are refused before UCX is involved; any process that can reach UCX's own port can \
         still send it packets, which are thrown away for want of a ticket, but its parsers see them first"
            .to_owned(),
    );
    lines
}

/// Checks that addresses with this scheme can be opened on this machine.
///
/// # Errors
/// Why they cannot.
pub fn missing(scheme: &str) -> Result<(), String> {
    let kind = kinds().iter().find(|kind| kind.scheme == scheme);
    kind.ok_or("there is no such scheme")?.is_here().map_err(|error| error.to_string())
}

fn line(kind: &'static Kind) -> String {
    let Kind { scheme, title, transports, .. } = kind;
    let loopback = match library() {
        Ok(library) if *transports == "tcp" && !library.connects_over_loopback() => {
            "not over the loopback interface; "
        }
        _ => "",
    };
    match kind.is_here() {
        Ok(()) => format!("{scheme} ({title}, `{transports}`): {loopback}{}", exposure(kind)),
        Err(error) => {
            format!("{scheme} ({title}): no: {error}; where it is, {}", exposure(kind))
        }
    }
}

/// How memory is reached, and what it is exposed to.
fn exposure(kind: &Kind) -> &'static str {
    match kind.reach {
        Reach::Owner => "put and get served by the owner; no memory is registered with it",
        Reach::Library => {
            "put and get by UCX; processes of one user can reach each other's memory anyway"
        }
        Reach::Nic => {
            "put and get served by the owner; by the NIC only if enabled, for then every process that can send packets on \
             its network can reach all memory of this process"
        }
    }
}

impl Kind {
    /// Whether the library can use it on this machine, or why not.
    pub(crate) fn is_here(&'static self) -> Result<(), OpenError> {
        self.permitted()?;
        Context::open(self, None, false).map(drop)
    }

    /// Whether the kernel lets it.
    pub(crate) fn permitted(&self) -> Result<(), OpenError> {
        match petasos_shm::probe().cross_memory {
            Err(reason) if self.reach == Reach::Library => {
                Err(OpenError::NotPermitted { transports: self.transports, reason })
            }
            _ => Ok(()),
        }
    }
}
