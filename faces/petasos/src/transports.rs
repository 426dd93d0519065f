//! Which transports this build has, and which one a URL means.

use petasos_fabric::{Address, AddressError, Endpoint};
use std::path::PathBuf;
#[cfg(any(feature = "ofi", feature = "ucx"))]
use std::sync::OnceLock;

/// What transports may need to know beside the URL. `Default` suits endpoints of one machine.
///
/// ```
/// use petasos::{OpenOptions, SecretBytes, open};
///
/// let mut options = OpenOptions::default();
/// // In place of `.secret_file("/home/ada/.petasos-secret")`.
/// options.secret = Some(SecretBytes::new(*b"at least sixteen random bytes"));
/// let endpoint = open("tcp://127.0.0.1:0", &options)?;
/// assert!(endpoint.address().as_str().starts_with("tcp://127.0.0.1:"));
/// # Ok::<(), petasos::OpenError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// A file with the secret that both sides of a connection over a network prove to know. It must
    /// belong to this user, and no other may read it.
    pub secret_file: Option<PathBuf>,
    /// The secret itself, in place of a file.
    pub secret: Option<SecretBytes>,
}

/// A secret, which is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Vec<u8>);

impl SecretBytes {
    /// These bytes; how many there have to be is the transport's to say.
    pub fn new(bytes: impl Into<Vec<u8>>) -> SecretBytes {
        SecretBytes(bytes.into())
    }
}

impl std::fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretBytes(…)")
    }
}

impl OpenOptions {
    /// Sets the file with the secret, for networks.
    #[must_use]
    pub fn secret_file(mut self, path: impl Into<PathBuf>) -> OpenOptions {
        self.secret_file = Some(path.into());
        self
    }
}

/// Why [`open`] gave no endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No transport has this scheme.
    #[error("`{scheme}` is no transport: write {known}")]
    UnknownScheme {
        /// The scheme asked for.
        scheme: String,
        /// What there is.
        known: String,
    },
    /// The transport exists, but this program was built without it.
    #[error("{scheme}: {reason}")]
    NotBuilt {
        /// The scheme asked for.
        scheme: &'static str,
        /// What to do about that.
        reason: &'static str,
    },
    /// The job does not say where this rank's endpoint is.
    #[cfg(feature = "job")]
    #[error(transparent)]
    Job(Box<petasos_pmix::JobError>),
    /// The endpoint within the process was refused.
    #[cfg(feature = "self-transport")]
    #[error(transparent)]
    Local(#[from] petasos_self::OpenError),
    /// Shared memory was refused.
    #[cfg(feature = "shm")]
    #[error(transparent)]
    Shm(#[from] petasos_shm::OpenError),
    /// TCP was refused.
    #[cfg(feature = "tcp")]
    #[error(transparent)]
    Tcp(#[from] petasos_tcp::OpenError),
    /// libfabric is missing, or refused.
    #[cfg(feature = "ofi")]
    #[error(transparent)]
    Ofi(#[from] petasos_ofi::OpenError),
    /// UCX is missing, or refused.
    #[cfg(feature = "ucx")]
    #[error(transparent)]
    Ucx(#[from] petasos_ucx::OpenError),
    /// Several transports were not put under one address.
    #[cfg(feature = "auto")]
    #[error(transparent)]
    Auto(#[from] petasos_auto::OpenError),
}

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
    /// A URL with which [`open`] makes an endpoint of any name on this machine.
    pub any: &'static str,
    /// Whether programs take it when they are told to take all: it is built in, and does not go the
    /// way of another one of these.
    pub by_default: bool,
    /// Why this program was built without it.
    unbuilt: Option<&'static str>,
}

const fn transport(
    scheme: &'static str,
    title: &'static str,
    any: &'static str,
    built: bool,
    without: &'static str,
) -> Transport {
    let unbuilt = if built { None } else { Some(without) };
    Transport { scheme, title, any, by_default: built, unbuilt }
}

static TRANSPORTS: [Transport; 6] = [
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
];

impl Transport {
    /// The transport of addresses with this scheme, whether or not it is here. Loads no library.
    #[must_use]
    pub fn of(scheme: &str) -> Option<&'static Transport> {
        // A provider may be named after a `+`, as in ofi+verbs.
        let family = family_of(scheme);
        TRANSPORTS.iter().find(|transport| transport.scheme == family)
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
            "auto" => vec![format!("this node: {}", petasos_auto::Node::here())],
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
    matches!(scheme, "self" | "shm")
}

/// All transports that this version knows, also those that this program was built without. Costs
/// nothing: [`Transport::missing`] says which are here.
#[must_use]
pub fn transports() -> &'static [Transport] {
    &TRANSPORTS
}

/// To be called at the beginning of a program that starts threads, and opens an endpoint over a
/// network of libfabric later: what that library reads from the environment can only be set while
/// there is one thread. Costs microseconds, and does nothing without the feature `ofi`.
pub fn prepare() {
    #[cfg(feature = "ofi")]
    petasos_ofi::prepare();
}

/// Opens an endpoint: the scheme of `url` says over which transport.
///
/// * `self://NAME` or `self://*`: within this process;
/// * `shm://NAME` or `shm://*`: over shared memory, between processes of one node;
/// * `tcp://HOST:PORT`: over TCP; port 0 for any free one; `tcp://HOST:PORT?encrypt` encrypts all
///   connections;
/// * `ofi+PROVIDER://HOST:PORT`, `ofi+shm://NAME`: by libfabric; `ofi://HOST:PORT` for the best
///   network;
/// * `ucx+TLS://HOST:PORT`, `ucx+posix://NAME`: by UCX; `ucx://HOST:PORT` for the best network;
/// * `auto://HOST:PORT` or `auto://*`: over shared memory to peers of this node, over the best
///   network to others; `auto://URL,URL` names the transports.
///
/// # Errors
/// See [`OpenError`]: what is wrong with the URL, or why the transport refused.
///
/// ```
/// use petasos::{OpenError, OpenOptions, open};
///
/// let endpoint = open("shm://*", &OpenOptions::default())?;
/// assert_eq!(endpoint.capabilities().scheme, "shm");
/// let error = open("smoke://signals", &OpenOptions::default());
/// assert!(matches!(error, Err(OpenError::UnknownScheme { .. })));
/// # Ok::<(), OpenError>(())
/// ```
pub fn open(url: &str, options: &OpenOptions) -> Result<Box<dyn Endpoint>, OpenError> {
    let address = Address::parse(url)?;
    match address.scheme() {
        #[cfg(feature = "self-transport")]
        "self" => Ok(Box::new(petasos_self::Local::open(&address)?)),
        #[cfg(feature = "shm")]
        "shm" => Ok(Box::new(petasos_shm::Shm::open(&address)?)),
        #[cfg(feature = "tcp")]
        "tcp" => Ok(Box::new(open_tcp(&address, options)?)),
        #[cfg(feature = "ofi")]
        scheme if scheme == "ofi" || scheme.starts_with("ofi+") => {
            let mut config = petasos_ofi::Config::default();
            let secret = match (&options.secret, &options.secret_file) {
                (Some(secret), _) => Some(petasos_ofi::Secret::new(secret.0.clone())),
                (None, path) => path.as_ref().map(petasos_ofi::Secret::from_file),
            };
            config.secret = secret.transpose().map_err(petasos_ofi::OpenError::from)?;
            Ok(Box::new(petasos_ofi::Ofi::open(&address, config)?))
        }
        #[cfg(feature = "ucx")]
        scheme if scheme == "ucx" || scheme.starts_with("ucx+") => {
            let mut config = petasos_ucx::Config::default();
            let secret = match (&options.secret, &options.secret_file) {
                (Some(secret), _) => Some(petasos_ucx::Secret::new(secret.0.clone())),
                (None, path) => path.as_ref().map(petasos_ucx::Secret::from_file),
            };
            config.secret = secret.transpose().map_err(petasos_ucx::OpenError::from)?;
            Ok(Box::new(petasos_ucx::Ucx::open(&address, config)?))
        }
        #[cfg(feature = "auto")]
        "auto" => Ok(Box::new(crate::open_auto(&address, options)?)),
        scheme => Err(refuse(scheme, options)),
    }
}

#[cfg(feature = "tcp")]
fn open_tcp(
    address: &Address,
    options: &OpenOptions,
) -> Result<petasos_tcp::TcpEndpoint, petasos_tcp::OpenError> {
    let mut config = petasos_tcp::Config::default();
    config.secret = match (&options.secret, &options.secret_file) {
        (Some(secret), _) => Some(petasos_tcp::Secret::new(secret.0.clone())?),
        (None, path) => path.as_ref().map(petasos_tcp::Secret::from_file).transpose()?,
    };
    petasos_tcp::TcpEndpoint::open(address, config)
}

/// Why there is no endpoint of this scheme, whatever the options.
fn refuse(scheme: &str, _: &OpenOptions) -> OpenError {
    if let Some(transport) = Transport::of(scheme)
        && let Some(reason) = transport.missing()
    {
        return OpenError::NotBuilt { scheme: transport.scheme, reason };
    }
    let built = transports().iter().filter(|transport| transport.missing().is_none());
    let known: Vec<String> = built.map(|transport| format!("{}://…", transport.scheme)).collect();
    OpenError::UnknownScheme { scheme: scheme.to_owned(), known: known.join(" or ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_chooses() {
        let options = OpenOptions::default();
        for transport in transports().iter().filter(|t| t.missing().is_none()) {
            let endpoint = open(transport.any, &options).unwrap();
            let family = endpoint.address().scheme().split('+').next();
            assert_eq!(family, Some(transport.scheme));
        }
    }

    #[test]
    fn what_stays_on_a_node() {
        for scheme in ["self", "shm", "ofi+shm", "ucx+posix", "ucx+sysv", "ucx+cma"] {
            assert!(stays_on_node(scheme), "{scheme}");
        }
        for scheme in ["tcp", "tcp?encrypt", "auto", "ofi", "ofi+verbs", "ucx", "ucx+tcp", "ucx+rc"]
        {
            assert!(!stays_on_node(scheme), "{scheme}");
        }
    }

    #[test]
    fn refusals_say_what_there_is() {
        let options = OpenOptions::default();
        let of = |url| open(url, &options).err().unwrap().to_string();
        assert_eq!(Transport::of("tcp?encrypt"), Transport::of("tcp"));
        assert!(of("tcp://*?encrypt").contains("secret"), "{}", of("tcp://*?encrypt"));
        assert!(of("ofi+none://*").contains("libfabric"), "{}", of("ofi+none://*"));
        assert!(of("ucx+none://*").contains("UCX"), "{}", of("ucx+none://*"));
        assert!(of("http://x").contains("no transport"), "{}", of("http://x"));
        assert!(of("nonsense").contains("no scheme"), "{}", of("nonsense"));
    }
}
