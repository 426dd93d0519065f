//! Transports that are loaded from files, beside those that are built in.

use crate::{OpenError, OpenOptions, Transport};
use petasos_fabric::{Address, Endpoint};
use petasos_plugin::{Found, Plugin, Prover, listed, load};
use std::sync::OnceLock;

/// What the environment lists, loaded by the first call.
fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| match listed() {
        Some(list) => {
            let taken: Vec<&str> = Transport::built_in().iter().map(|one| one.scheme).collect();
            load(&list, &taken)
        }
        None => Found::default(),
    })
}

/// All of them.
pub(crate) fn plugins() -> &'static [Plugin] {
    &found().plugins
}

/// What was not loaded, and why.
pub(crate) fn failures() -> &'static [petasos_plugin::LoadError] {
    &found().failures
}

/// The one with this scheme.
pub(crate) fn of(scheme: &str) -> Option<&'static Plugin> {
    plugins().iter().find(|plugin| plugin.scheme == scheme)
}

/// Opens an endpoint of one.
pub(crate) fn open(
    address: &Address,
    options: &OpenOptions,
) -> Result<Box<dyn Endpoint>, OpenError> {
    match of(address.scheme()) {
        Some(plugin) => Ok(Box::new(plugin.open(address, prover(options)?)?)),
        None => unreachable!("its scheme was looked up before"),
    }
}

/// The secret of the options, if there is one.
#[cfg(feature = "tcp")]
pub(crate) fn prover(options: &OpenOptions) -> Result<Option<Prover>, OpenError> {
    let secret = match (&options.secret, &options.secret_file) {
        (Some(secret), _) => petasos_tcp::Secret::new(secret.0.clone()),
        (None, Some(path)) => petasos_tcp::Secret::from_file(path),
        (None, None) => return Ok(None),
    };
    let secret = secret.map_err(petasos_tcp::OpenError::from)?;
    Ok(Some(std::sync::Arc::new(move |bytes| secret.code("petasos plug-in", bytes))))
}

/// Secrets are read by the transport over TCP.
#[cfg(not(feature = "tcp"))]
pub(crate) fn prover(options: &OpenOptions) -> Result<Option<Prover>, OpenError> {
    match options.secret.is_some() || options.secret_file.is_some() {
        false => Ok(None),
        true => Err(OpenError::NotBuilt {
            scheme: "secret",
            reason: "not built in: needs the feature `tcp` of the crate `petasos`",
        }),
    }
}
