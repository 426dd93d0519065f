//! Which transports this build has.

#[cfg(feature = "tenant")]
use petasos_tenant::BROKER;
#[cfg(any(feature = "ofi", feature = "ucx", feature = "plugin", feature = "tenant"))]
use std::sync::OnceLock;
use std::{fmt, path::Path};

/// A transport that exists: built into this program, or not.
///
/// ```
/// for transport in petasos::transports() {
///     match transport.missing() {
///         None => println!("{}: {}, as in {}", transport.scheme, transport.title, transport.any),
///         Some(why) => println!("{}: {why}", transport.scheme),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transport {
    /// The scheme of its addresses; providers of one family follow after a `+`, as in `ofi+verbs`.
    pub scheme: &'static str,
    /// What it is.
    pub title: &'static str,
    /// A URL with which [`open`](crate::open) makes an endpoint of any name on this machine.
    pub any: &'static str,
    /// Whether programs take it when they are told to take all: it is built in, and does not use
    /// another one of these.
    pub by_default: bool,
    /// Why this program was built without it.
    unbuilt: Option<&'static str>,
    /// Where it was loaded from, if it is not part of the program.
    file: Option<&'static Path>,
}

const fn transport(
    scheme: &'static str,
    title: &'static str,
    any: &'static str,
    built: bool,
    without: &'static str,
) -> Transport {
    let unbuilt = if built { None } else { Some(without) };
    Transport { scheme, title, any, by_default: built, unbuilt, file: None }
}

static TRANSPORTS: [Transport; 7] = [
    transport(
        "self",
        "within the process",
        "self://*",
        cfg!(feature = "self-transport"),
        "not built in: needs the feature `self-transport` of the crate `petasos`",
    ),
    transport(
        "shm",
        "shared memory of this node",
        "shm://*",
        cfg!(feature = "shm"),
        "not built in: needs the feature `shm` of the crate `petasos`",
    ),
    transport(
        "tcp",
        "TCP",
        "tcp://127.0.0.1:0",
        cfg!(feature = "tcp"),
        "not built in: needs the feature `tcp` of the crate `petasos`",
    ),
    Transport {
        by_default: false,
        ..transport(
            "ofi",
            "RDMA networks, by libfabric",
            "ofi://*",
            cfg!(feature = "ofi"),
            "not built in: needs the feature `ofi` of the crate `petasos`",
        )
    },
    Transport {
        by_default: false,
        ..transport(
            "auto",
            "shared memory on a node, a network between nodes",
            "auto://*",
            cfg!(feature = "auto"),
            "not built in: needs the feature `auto` of the crate `petasos`",
        )
    },
    Transport {
        by_default: false,
        ..transport(
            "ucx",
            "RDMA networks, by UCX",
            "ucx://*",
            cfg!(feature = "ucx"),
            "not built in: needs the feature `ucx` of the crate `petasos`",
        )
    },
    Transport {
        by_default: false,
        ..transport(
            "tenant",
            "the host's broker, for containers",
            "tenant://*",
            cfg!(feature = "tenant"),
            "not built in: needs the feature `tenant` of the crate `petasos`",
        )
    },
];

impl Transport {
    /// The transport of addresses with this scheme, whether or not it is here. Loads no library
    /// for those that this version knows; for another scheme, what `PETASOS_TRANSPORTS` lists.
    #[must_use]
    pub fn of(scheme: &str) -> Option<&'static Transport> {
        // A provider may be named after a `+`, as in ofi+verbs.
        let family = family_of(scheme);
        let known = TRANSPORTS.iter().find(|transport| transport.scheme == family);
        known.or_else(|| transports().iter().find(|transport| transport.scheme == scheme))
    }

    /// Those that this version knows.
    #[cfg(feature = "plugin")]
    pub(crate) fn built_in() -> &'static [Transport] {
        &TRANSPORTS
    }

    /// The file from which it was loaded; `None` if it is part of the program.
    #[must_use]
    pub fn file(&self) -> Option<&'static Path> {
        self.file
    }

    /// The scheme without the provider: `ofi` of `ofi+tcp`, `tcp` of `tcp?encrypt`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        family_of(self.scheme)
    }

    /// Why this program does not have it here; `None` if it does. For a network this loads its
    /// library, when it is first asked, which takes a moment.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        match self.family() {
            #[cfg(feature = "ofi")]
            "ofi" => {
                static WITHOUT: OnceLock<Option<String>> = OnceLock::new();
                let find = || petasos_ofi::find().err().map(|error| error.to_string());
                WITHOUT.get_or_init(find).as_deref()
            }
            #[cfg(feature = "ucx")]
            "ucx" => {
                static WITHOUT: OnceLock<Option<String>> = OnceLock::new();
                let find = || petasos_ucx::find().err().map(|error| error.to_string());
                WITHOUT.get_or_init(find).as_deref()
            }
            #[cfg(feature = "tenant")]
            "tenant" => {
                static WITHOUT: OnceLock<String> = OnceLock::new();
                let socket = petasos_tenant::broker();
                let why =
                    || format!("no broker: {socket} is not there; see `petasos broker`, {BROKER}");
                (!Path::new(&socket).exists()).then(|| WITHOUT.get_or_init(why).as_str())
            }
            _ => self.unbuilt,
        }
    }

    /// What this machine lets the transport do, a line each: whether other processes' memory can
    /// be reached, where it can listen.
    #[must_use]
    pub fn probe(&self) -> Vec<String> {
        match self.family() {
            #[cfg(feature = "shm")]
            "shm" => {
                let found = petasos_shm::probe();
                let line = |what: &str, is: &Result<(), String>| match is {
                    Ok(()) => format!("{what}: yes"),
                    Err(why) => format!("{what}: no: {why}"),
                };
                vec![
                    line("memory shared by descriptor", &found.available),
                    line("ordinary memory of others by process_vm_readv", &found.cross_memory),
                    line("memory given to be read only", &found.read_only_segments),
                ]
            }
            #[cfg(feature = "tcp")]
            "tcp" => vec![format!("addresses here: {}", petasos_tcp::probe().join(", "))],
            #[cfg(feature = "ofi")]
            "ofi" => petasos_ofi::probe(),
            #[cfg(feature = "ucx")]
            "ucx" => petasos_ucx::probe(),
            #[cfg(feature = "auto")]
            "auto" => vec![format!("this node: {}", petasos_auto::Node::local())],
            _ => Vec::new(),
        }
    }
}

/// What stands before the provider, or the option as in `tcp?encrypt`, which makes a variant of
/// TCP.
fn family_of(scheme: &str) -> &str {
    if scheme == "tcp?encrypt" {
        return "tcp";
    }
    scheme.split('+').next().unwrap_or(scheme)
}

/// Whether endpoints with this scheme are reached from their own node alone: shared memory, also by
/// a library's name for it.
#[must_use]
pub fn stays_on_node(scheme: &str) -> bool {
    #[cfg(feature = "ofi")]
    if let Some(provider) = petasos_ofi::providers().iter().find(|p| p.scheme == scheme) {
        return provider.meeting == petasos_ofi::Meeting::Shm;
    }
    #[cfg(feature = "ucx")]
    if let Some(kind) = petasos_ucx::kinds().iter().find(|kind| kind.scheme == scheme) {
        return kind.meeting == petasos_ucx::Meeting::Shm;
    }
    matches!(scheme, "self" | "shm" | "tenant")
}

/// All transports that this version knows, also those that this program was built without, and
/// those that the environment variable `PETASOS_TRANSPORTS` lists, which are loaded by the first
/// call: shared objects, by their paths or by directories with files `libpetasos_transport_*.so`,
/// separated by `:`. Without it this costs nothing: [`Transport::missing`] says which are here.
#[must_use]
pub fn transports() -> &'static [Transport] {
    #[cfg(feature = "plugin")]
    if !crate::loaded::plugins().is_empty() {
        static ALL: OnceLock<Vec<Transport>> = OnceLock::new();
        let loaded = crate::loaded::plugins().iter().map(|plugin| Transport {
            by_default: false,
            file: Some(plugin.file),
            ..transport(plugin.scheme, plugin.title, plugin.any, true, "")
        });
        return ALL.get_or_init(|| TRANSPORTS.iter().copied().chain(loaded).collect());
    }
    &TRANSPORTS
}

/// What `PETASOS_TRANSPORTS` lists and was not loaded: each says the file, what is wrong, and what
/// to do.
#[must_use]
pub fn not_loaded() -> Vec<impl fmt::Display> {
    #[cfg(feature = "plugin")]
    return crate::loaded::failures().to_vec();
    #[cfg(not(feature = "plugin"))]
    Vec::<String>::new()
}

/// To be called at the beginning of a program that starts threads, and opens an endpoint over a
/// network of libfabric later: what that library reads from the environment can only be set while
/// there is one thread. Costs microseconds, and does nothing without the feature `ofi`.
pub fn prepare() {
    #[cfg(feature = "ofi")]
    petasos_ofi::prepare();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_on_a_node() {
        for scheme in ["self", "shm", "tenant", "ofi+shm", "ucx+posix", "ucx+sysv", "ucx+cma"] {
            assert!(stays_on_node(scheme), "{scheme}");
        }
        for scheme in ["tcp", "tcp?encrypt", "auto", "ofi", "ofi+verbs", "ucx", "ucx+tcp", "ucx+rc"]
        {
            assert!(!stays_on_node(scheme), "{scheme}");
        }
    }
}
