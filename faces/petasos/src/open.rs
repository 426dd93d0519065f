//! Opens endpoints: which transport a URL means.
//!
//! The members of an `auto://` address are opened here, too, each by its own URL.

#[cfg(feature = "auto")]
use crate::whichever;
use crate::{OpenError, OpenOptions, Transport, transports};
use petasos_fabric::{Address, Attended, Endpoint};

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
///   network to others; `auto://URL,URL` names the transports;
/// * `tenant://NAME@TENANT` or `tenant://*`: from a container, through the host's broker, whose
///   socket the environment variable `PETASOS_BROKER` names;
/// * `SCHEME://…`: over a transport that is loaded from a file, if the environment variable
///   `PETASOS_TRANSPORTS` lists one with this scheme ([`transports`](crate::transports())).
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
    let endpoint = open_bare(url, options)?;
    Ok(match options.attended {
        Some(config) => Box::new(Attended::new(endpoint, config)?),
        None => endpoint,
    })
}

/// The same without a thread.
fn open_bare(url: &str, options: &OpenOptions) -> Result<Box<dyn Endpoint>, OpenError> {
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
            Ok(petasos_ofi::boxed(petasos_ofi::open(&address, config)?))
        }
        #[cfg(feature = "ucx")]
        scheme if scheme == "ucx" || scheme.starts_with("ucx+") => {
            let mut config = petasos_ucx::Config::default();
            let secret = match (&options.secret, &options.secret_file) {
                (Some(secret), _) => Some(petasos_ucx::Secret::new(secret.0.clone())),
                (None, path) => path.as_ref().map(petasos_ucx::Secret::from_file),
            };
            config.secret = secret.transpose().map_err(petasos_ucx::OpenError::from)?;
            Ok(petasos_ucx::boxed(petasos_ucx::open(&address, config)?))
        }
        #[cfg(feature = "auto")]
        "auto" => Ok(Box::new(open_auto(&address, options)?)),
        #[cfg(feature = "tenant")]
        "tenant" => {
            let prover = crate::loaded::prover(options)?;
            Ok(Box::new(petasos_tenant::Endpoint::open(&address, prover)?))
        }
        #[cfg(feature = "plugin")]
        scheme if crate::loaded::of(scheme).is_some() => crate::loaded::open(&address, options),
        scheme => Err(refuse(scheme, options)),
    }
}

/// Opens an endpoint of several transports: what [`open`] does for `auto://`, as what it is.
///
/// * `auto://*`: shared memory, and TCP on the loopback interface;
/// * `auto://HOST:PORT`: shared memory, TCP there, and if this machine has a network
///   device that libfabric knows, and `HOST` is not the loopback interface, that, too, in
///   preference to TCP;
/// * `auto://URL,URL`: those, networks in the order of preference. `auto://tcp://HOST:PORT` goes
///   without shared memory. The whole address of an endpoint that has ended is such a list, too.
///
/// It is not attended, whatever the options say: [`Attended`](petasos_fabric::Attended) takes it as
/// any other.
///
/// # Errors
/// See [`OpenError`]: one of the transports was refused, or they do not go together.
#[cfg(feature = "auto")]
pub fn open_auto(
    address: &Address,
    options: &OpenOptions,
) -> Result<petasos_auto::Auto, OpenError> {
    whichever::open_members(address, |url| open_bare(url, options))
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
    let mut known = known.join(" or ");
    // What was asked for may be what one of these would have been.
    for failure in crate::not_loaded() {
        known += &format!("; not loaded: {failure}");
    }
    OpenError::UnknownScheme { scheme: scheme.to_owned(), known }
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
    fn a_thread_attends_where_that_is_wanted() {
        let options = OpenOptions::default().attended(Default::default());
        for transport in transports().iter().filter(|t| t.missing().is_none()) {
            assert!(open(transport.any, &options).unwrap().capabilities().attended);
            let plain = open(transport.any, &OpenOptions::default()).unwrap();
            assert!(!plain.capabilities().attended, "{}", transport.scheme);
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
