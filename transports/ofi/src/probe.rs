//! What is available, for `petasos info`.

use crate::{
    Config, LoadError, Net,
    providers::{Provider, providers},
    sys::{library::library, offer::Offer},
};
use petasos_datagram::{Meeting, Network};

/// Loads the library, if it is not loaded yet, and returns its version and its file.
///
/// # Errors
/// libfabric is not installed, or its version is not supported.
pub fn find() -> Result<String, LoadError> {
    let library = library()?;
    Ok(format!("libfabric {} ({})", library.version_text(), library.path()))
}

/// The library, and what each provider can do here, or why it cannot be used: a line each.
#[must_use]
pub fn probe() -> Vec<String> {
    let found = match find() {
        Ok(found) => found,
        Err(error) => return vec![error.to_string()],
    };
    let mut lines = vec![found];
    let others = Offer::all().unwrap_or_default();
    for provider in providers() {
        lines.push(line(provider, &others));
    }
    lines.push("what is not here: `FI_LOG_LEVEL=warn fi_info -p PROVIDER` says more".to_owned());
    lines.push(
        "exposure: unauthenticated peers are refused before libfabric is involved; any process that can reach a provider's \
         own port can still send it packets, which are thrown away for want of a ticket, but its parsers see them \
         first"
            .to_owned(),
    );
    lines
}

fn line(provider: &'static Provider, others: &[Offer]) -> String {
    let (scheme, title) = (provider.scheme, provider.title);
    match provider.offer(None) {
        Ok(Some(offer)) => {
            // Whether it opens, too, depends on the device, and on the environment.
            if offer.layered_on_device()
                && let Err(error) = Net::open(provider, None, 64, &Config::default())
            {
                return format!("{scheme} ({title}) on {}: no: {error}", offer.domain());
            }
            let rma = match offer.has_rma() {
                true => "put and get by the provider",
                false => "put and get served by the owner",
            };
            let shared = if offer.has_multi_recv() {
                "shared receive buffers"
            } else {
                "single receive buffers"
            };
            format!(
                "{scheme} ({title}, `{}` on {}): {rma}, {shared}; {}",
                offer.provider(),
                offer.domain(),
                exposure(provider, &offer)
            )
        }
        Ok(None) => {
            let like = |offer: &&Offer| {
                offer.provider().split(';').any(|layer| provider.names.contains(&layer))
            };
            match others.iter().find(like) {
                Some(other) => format!(
                    "{scheme} ({title}): no: `{}` on {} needs a mode that is not supported here",
                    other.provider(),
                    other.domain()
                ),
                None => format!(
                    "{scheme} ({title}): no: no such provider in this library, or no device for it; where it is, {}",
                    granted(provider.may_make_keys(), provider.is_layered())
                ),
            }
        }
        Err(error) => format!("{scheme}: no: {error}"),
    }
}

/// How memory that was granted is exposed.
fn exposure(provider: &Provider, offer: &Offer) -> &'static str {
    if !offer.has_rma() {
        return "no memory is registered with it";
    }
    if provider.meeting == Meeting::Shm {
        return "memory granted to a peer: random keys; processes of one user could reach it anyway";
    }
    granted(offer.makes_keys(), offer.provider().ends_with("ofi_rxm"))
}

/// The same for a network, by where keys come from, and whether layers of the library open all
/// memory for reading.
fn granted(makes_keys: bool, layered: bool) -> &'static str {
    match (makes_keys, layered) {
        (false, true) => {
            "memory granted to a peer: random 64-bit keys; memory can be read by any process that has one, and written if the region \
             allows it"
        }
        (false, false) => "memory granted to a peer: random keys, rights checked by the provider",
        (true, _) => {
            "memory granted to a peer: keys are the provider's, and a process that can send packets on its network may guess them; \
             rights are checked by the device"
        }
    }
}
