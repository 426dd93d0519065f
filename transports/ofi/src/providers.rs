//! Which provider an address means.

use crate::sys::{
    FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MULTI_RECV, FI_RMA,
    library::Library,
    offer::{Offer, Wish},
};
use crate::{LoadError, OpenError};
use petasos_datagram::Meeting;
use petasos_fabric::Address;
use std::ffi::c_int;

/// A kind of address, and what it means to libfabric.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Provider {
    /// The scheme of its addresses.
    pub scheme: &'static str,
    /// Names in the library, the better first.
    pub names: &'static [&'static str],
    /// How its endpoints find each other.
    pub meeting: Meeting,
    /// What it runs on.
    pub title: &'static str,
    /// Whether the provider is told which address of this machine to use.
    placed: bool,
    /// Modes of registering memory that are supported.
    memory: c_int,
    /// Whether its completion data of writes is made use of: where it was seen to come, once for
    /// each write, when all of it is there. Not verbs: with shared receive queues, without which
    /// `ofi_rxm` crashes, its writes with data are reported as packets, of which nothing arrives
    /// (seen with 1.17, and so in the source of 2.5). Others were not tested, and have conditions
    /// of their own: cxi counts these bytes for writes apart, psm3 has as many as it is asked for.
    remote_data: bool,
}

const DEVICE: c_int = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

const fn provider(
    scheme: &'static str,
    names: &'static [&'static str],
    title: &'static str,
    placed: bool,
    memory: c_int,
    remote_data: bool,
) -> Provider {
    Provider { scheme, names, meeting: Meeting::Tcp, title, placed, memory, remote_data }
}

/// All kinds; `ofi://` means the first of the networks that is available.
const PROVIDERS: [Provider; 10] = [
    provider("ofi+cxi", &["cxi"], "HPE Slingshot", false, FI_MR_ENDPOINT | FI_MR_ALLOCATED, false),
    provider("ofi+efa", &["efa"], "AWS Elastic Fabric Adapter", false, DEVICE, false),
    provider("ofi+psm3", &["psm3"], "Intel Ethernet and Omni-Path", false, DEVICE, false),
    provider("ofi+opx", &["opx"], "Cornelis Omni-Path", false, DEVICE, false),
    provider("ofi+verbs", &["verbs;ofi_rxm"], "InfiniBand and RoCE", true, DEVICE, false),
    provider("ofi+verbs;ofi_rxm", &["verbs;ofi_rxm"], "InfiniBand and RoCE", true, DEVICE, false),
    provider("ofi+tcp", &["tcp", "tcp;ofi_rxm"], "TCP sockets", true, 0, true),
    provider("ofi+tcp;ofi_rxm", &["tcp;ofi_rxm"], "TCP sockets", true, 0, true),
    provider("ofi+udp", &["udp;ofi_rxd"], "UDP sockets", true, 0, false),
    // With virtual addresses this provider reaches into the other process without asking for the
    // key.
    Provider {
        scheme: "ofi+shm",
        names: &["shm"],
        meeting: Meeting::Shm,
        title: "shared memory of this node",
        placed: false,
        memory: 0,
        remote_data: true,
    },
];

/// The scheme that means the best network.
pub(crate) const BEST: &str = "ofi";

/// All kinds of addresses of this transport.
#[must_use]
pub fn providers() -> &'static [Provider] {
    &PROVIDERS
}

impl Provider {
    /// Whether there is no NIC that accesses memory.
    pub(crate) fn is_software(&self) -> bool {
        self.memory == 0
    }

    /// Whether it is always a layer over another one of the library's.
    pub(crate) fn is_layered(&self) -> bool {
        self.names.iter().all(|name| name.ends_with("ofi_rxm"))
    }

    /// Whether the provider may choose the keys of memory, where it is not here to be asked.
    pub(crate) fn may_make_keys(&self) -> bool {
        self.memory & FI_MR_PROV_KEY != 0
    }

    /// Bits of completion data that its writes carry and that can be relied on.
    pub(crate) fn data_bits(&self, offer: &Offer) -> u32 {
        let bytes = if self.remote_data { offer.completion_data().min(8) } else { 0 };
        8 * bytes as u32
    }

    /// The provider that an address means; for `ofi://` the best that is available.
    pub(crate) fn of(address: &Address) -> Result<&'static Provider, OpenError> {
        let scheme = address.scheme();
        if scheme == BEST {
            let usable = |provider: &&Provider| {
                provider.meeting == Meeting::Tcp
                    && provider.offer(None).is_ok_and(|offer| offer.is_some())
            };
            crate::sys::library::library()?;
            return PROVIDERS.iter().find(usable).ok_or_else(|| none("tcp", usable_names()));
        }
        let found = PROVIDERS.iter().find(|provider| provider.scheme == scheme);
        found.ok_or_else(|| {
            let names = PROVIDERS.iter().filter(|provider| provider.meeting == Meeting::Tcp);
            let names: Vec<_> =
                names.filter_map(|provider| provider.scheme.strip_prefix("ofi+")).collect();
            OpenError::NotOfi { address: address.clone(), known: names.join(", ") }
        })
    }

    /// What the library offers of it: preferably with remote access and shared receive buffers.
    /// `source` is this machine's address that others connect to.
    pub(crate) fn offer(&self, source: Option<&str>) -> Result<Option<Offer>, LoadError> {
        let source = source.filter(|_| self.placed);
        for name in self.names {
            for caps in [FI_RMA | FI_MULTI_RECV, FI_MULTI_RECV, FI_RMA, 0] {
                let wish = Wish { provider: Some(name), source, memory: self.memory, caps };
                // Some versions put layers on top of what was asked for: not those.
                let offers = Offer::find(wish)?;
                let exact = offers.into_iter().find(|offer| offer.provider() == *name);
                if exact.is_some() {
                    return Ok(exact);
                }
            }
        }
        Ok(None)
    }

    /// The same, or why there is none.
    pub(crate) fn must_offer(&self, source: Option<&str>) -> Result<Offer, OpenError> {
        let offer = self.offer(source)?;
        offer.ok_or_else(|| none(self.names[0], usable_names()))
    }
}

fn none(provider: &str, offered: String) -> OpenError {
    // As the library's own command takes it.
    let provider = provider.split(';').next().unwrap_or(provider);
    let version =
        crate::sys::library::library().map_or_else(|_| String::new(), Library::version_text);
    OpenError::NoProvider { provider: provider.to_owned(), version, offered }
}

fn usable_names() -> String {
    let usable = |provider: &&Provider| provider.offer(None).is_ok_and(|o| o.is_some());
    let names: Vec<&str> = PROVIDERS.iter().filter(usable).map(|p| p.scheme).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}
