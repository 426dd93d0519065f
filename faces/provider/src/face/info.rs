//! `fi_getinfo`: what this provider offers, and to which hints.
//!
//! libfabric frees what it is given by `free`, part by part, and its newer versions have more
//! behind the structures that are written down here. So each part is allocated by `calloc`, with
//! zeros behind it.

use super::{
    format::{Format, copied},
    host,
    hosts::{self, Wanted},
    log,
};
use crate::{
    limits::{EAGER, INJECT, OPERATIONS, PIECES},
    state::{
        error::Errno,
        name::{LEN, Named},
        open::{SECRET_FILE, has_secret},
    },
};
use petasos_ofi_sys::*;
use std::{
    env,
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

/// The provider's name, and that of its fabric and domain.
pub(super) const NAME: &CStr = c"petasos";
/// The version of the provider.
pub(super) const VERSION: u32 = 1;
/// The wire protocol, of this provider's own.
const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x7065;
const PROTOCOL_VERSION: u32 = 1;
/// Tags are plain numbers: all bits are the program's.
const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

const TRANSFERS: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
const OUT: u64 = FI_SEND | FI_READ | FI_WRITE;
const IN: u64 = FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// What a domain has, which both directions may be asked for as well.
const COMM: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
/// What asks for nothing but what is there anyway.
const ALWAYS: u64 = FI_SOURCE | COMM;
/// Everything.
pub(super) const ALL: u64 =
    TRANSFERS | OUT | IN | FI_FENCE | FI_MULTI_RECV | FI_DIRECTED_RECV | ALWAYS;
const TRANSMIT: u64 = TRANSFERS | OUT | FI_FENCE;
const RECEIVE: u64 = TRANSFERS | IN | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
/// Flags that may be those of all operations of an endpoint.
const TRANSMIT_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;
/// Atomics after atomics, in every combination: where a program asks for one, all are.
pub(super) const ATOMIC_ORDER: u64 =
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
const ORDER: u64 = FI_ORDER_SAS | ATOMIC_ORDER;
/// How memory may be registered, where a program offers to.
const MODES: c_int = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

pub(super) unsafe extern "C" fn getinfo(
    api: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    out: *mut *mut fi_info,
) -> c_int {
    super::object::int(|| {
        if out.is_null() {
            return Err(libc::EINVAL);
        }
        if !host::is_known() {
            return Err(libc::ENODATA);
        }
        // SAFETY: null, or hints of libfabric's that stay meanwhile, with all they point to; texts
        // with zeros behind them, or null; and a place for a list, not null.
        unsafe {
            let hints = hints.as_ref();
            let mut offer = hints.map_or(Ok(Offer::default()), |hints| offer(hints, api))?;
            let ends = ends(node, service, flags, hints, &mut offer.format)?;
            out.write(offer.write(api, &ends)?);
        }
        Ok(0)
    })
}

/// Where an endpoint is to be, and with whom it is to communicate first.
struct Ends {
    source: Named,
    destination: Option<Named>,
}

/// The ends that hints and a host and port ask for.
///
/// # Errors
/// `ENODATA`: there is no such place, or a peer cannot be found by it.
///
/// # Safety
/// The texts are null or end with a zero, and all that the hints point to is there.
unsafe fn ends(
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: Option<&fi_info>,
    format: &mut Format,
) -> Result<Ends, Errno> {
    let (mut source, mut destination) = (None, None);
    if let Some(hints) = hints {
        let given = |at: *mut c_void, len| {
            // SAFETY: null, or so long (the caller's promise).
            unsafe { format.given(at, len) }.map_err(|_| libc::ENODATA)
        };
        source = given(hints.src_addr, hints.src_addrlen)?;
        destination = given(hints.dest_addr, hints.dest_addrlen)?;
    }
    // SAFETY: null, or with a zero at the end (the caller's promise).
    let text = |at: *const c_char| (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) });
    let (node, service) = (text(node), text(service));
    if node.is_some() || service.is_some() {
        let own = flags & FI_SOURCE != 0;
        let wanted = Wanted { own, six: *format == Format::Internet6, numeric: false };
        let found = hosts::find(node, service, wanted.flags(flags))?;
        *(if own { &mut source } else { &mut destination }) = Some(found);
    }
    if matches!(destination, Some(Named::Place(_))) && !has_secret() {
        // SAFETY: null, or there (the caller's promise).
        let asked = hints.and_then(|hints| unsafe { hints.fabric_attr.as_ref() });
        let alone = env::var_os("FI_PROVIDER").is_some_and(|name| name == "petasos");
        // Other providers may find it.
        if alone || asked.is_some_and(|fabric| !fabric.prov_name.is_null()) {
            log::warn(&format!(
                "to find peers by hosts and ports takes a secret, in a file that {SECRET_FILE} \
                 names for all processes of the job"
            ));
        }
        return Err(libc::ENODATA);
    }
    Ok(Ends { source: source.unwrap_or_else(|| format.anywhere()), destination })
}

/// What answers some hints.
#[derive(Clone, Copy)]
struct Offer {
    caps: u64,
    transmit_flags: u64,
    receive_flags: u64,
    order: u64,
    threading: c_int,
    progress: c_int,
    vector: c_int,
    memory: c_int,
    format: Format,
}

impl Default for Offer {
    fn default() -> Offer {
        Offer {
            caps: ALL,
            transmit_flags: 0,
            receive_flags: 0,
            order: FI_ORDER_SAS,
            threading: FI_THREAD_SAFE,
            progress: FI_PROGRESS_MANUAL,
            vector: FI_AV_TABLE,
            memory: 0,
            format: Format::Own,
        }
    }
}

/// What is offered for hints.
///
/// # Errors
/// `ENODATA`: they ask for more than there is.
///
/// # Safety
/// All that the hints point to is there.
unsafe fn offer(hints: &fi_info, api: u32) -> Result<Offer, Errno> {
    const NO: Errno = libc::ENODATA;
    let need = |met: bool| if met { Ok(()) } else { Err(NO) };
    let mut offer = Offer::default();
    // SAFETY: each is null or there (the caller's promise); names end with a zero.
    let (transmit, receive, endpoint, domain, fabric) = unsafe {
        (
            hints.tx_attr.as_ref(),
            hints.rx_attr.as_ref(),
            hints.ep_attr.as_ref(),
            hints.domain_attr.as_ref(),
            hints.fabric_attr.as_ref(),
        )
    };
    let named = |name: *const c_char| {
        // SAFETY: as above.
        name.is_null() || unsafe { CStr::from_ptr(name) } == NAME
    };
    need(hints.caps & !ALL == 0)?;
    offer.format = Format::of(hints.addr_format).ok_or(NO)?;
    if hints.caps != 0 {
        offer.caps = complete(hints.caps);
    }
    if let Some(of) = endpoint {
        need(matches!(of.r#type, FI_EP_UNSPEC | FI_EP_RDM))?;
        need(of.protocol == 0 || of.protocol == PROTOCOL)?;
        need(of.max_msg_size <= isize::MAX as usize && of.msg_prefix_size == 0)?;
        need(of.tx_ctx_cnt <= 1 && of.rx_ctx_cnt <= 1 && of.auth_key_size == 0)?;
        need(of.max_order_raw_size | of.max_order_war_size | of.max_order_waw_size == 0)?;
    }
    if let Some(of) = transmit {
        need(of.caps & !(TRANSMIT | RECEIVE | COMM) == 0 && of.op_flags & !TRANSMIT_FLAGS == 0)?;
        need(of.msg_order & !ORDER == 0 && of.comp_order == 0)?;
        offer.order |= of.msg_order;
        need(of.inject_size <= INJECT && of.size <= OPERATIONS)?;
        need(of.iov_limit <= PIECES && of.rma_iov_limit <= 1)?;
        offer.transmit_flags = of.op_flags;
    }
    if let Some(of) = receive {
        need(of.caps & !(TRANSMIT | RECEIVE | COMM) == 0 && of.op_flags & !RECEIVE_FLAGS == 0)?;
        need(of.msg_order & !ORDER == 0 && of.comp_order == 0)?;
        offer.order |= of.msg_order;
        need(of.size <= OPERATIONS && of.iov_limit <= PIECES)?;
        offer.receive_flags = of.op_flags;
    }
    if let Some(of) = fabric {
        need(named(of.name))?;
    }
    if let Some(of) = domain {
        need(named(of.name))?;
        need(of.cq_data_size <= 8 && of.mr_key_size <= 8 && of.mr_iov_limit <= 1)?;
        need(of.max_ep_tx_ctx <= 1 && of.max_ep_rx_ctx <= 1 && of.auth_key_size == 0)?;
        need(of.max_ep_stx_ctx == 0 && of.max_ep_srx_ctx == 0)?;
        need(of.caps & !COMM == 0)?;
        if of.threading != 0 {
            offer.threading = of.threading;
        }
        if of.data_progress == FI_PROGRESS_AUTO || of.control_progress == FI_PROGRESS_AUTO {
            offer.progress = FI_PROGRESS_AUTO;
        }
        if matches!(of.av_type, FI_AV_MAP | FI_AV_TABLE) {
            offer.vector = of.av_type;
        }
        offer.memory = match of.mr_mode {
            // Before 1.5 there were two words.
            0 if api < (1 << 16 | 5) => FI_MR_BASIC,
            mode if mode & FI_MR_BASIC != 0 => FI_MR_BASIC,
            mode if mode & FI_MR_SCALABLE != 0 => FI_MR_SCALABLE,
            mode => mode & MODES,
        };
    }
    if offer.caps & (FI_RMA | FI_ATOMIC) == 0 && offer.memory & (FI_MR_BASIC | FI_MR_SCALABLE) == 0
    {
        offer.memory = 0;
    }
    Ok(offer)
}

/// What a program has that asks for this: both directions of what it names, and what is there
/// anyway.
fn complete(asked: u64) -> u64 {
    let mut caps = asked | ALWAYS;
    let mut either = |kinds: u64, ways: u64| {
        if asked & kinds != 0 && asked & ways == 0 {
            caps |= ways;
        }
    };
    either(FI_MSG | FI_TAGGED, FI_SEND | FI_RECV);
    either(FI_RMA | FI_ATOMIC, FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);
    caps
}

/// Zeros, for a `T` and what later versions have behind it.
fn zeroed<T>() -> Result<*mut T, Errno> {
    const SLACK: usize = 256;
    // SAFETY: takes any size.
    let at = unsafe { libc::calloc(1, size_of::<T>() + SLACK) }.cast::<T>();
    if at.is_null() { Err(libc::ENOMEM) } else { Ok(at) }
}

/// A name, for `free`.
fn name() -> Result<*mut c_char, Errno> {
    // SAFETY: ends with a zero.
    let copy = unsafe { libc::strdup(NAME.as_ptr()) };
    if copy.is_null() { Err(libc::ENOMEM) } else { Ok(copy) }
}

/// What newer versions have behind `fi_domain_attr`, in order: `max_ep_auth_key`, `max_group_id`,
/// `max_cntr_value`, `max_err_cntr_value`.
#[repr(C)]
struct LaterDomain {
    known: fi_domain_attr,
    max_ep_auth_key: usize,
    max_group_id: u32,
    max_cntr_value: u64,
    max_err_cntr_value: u64,
}

impl Offer {
    /// As libfabric has it. (Where there is no memory, what was allocated before stays: it ends
    /// the program anyway.)
    fn write(&self, api: u32, ends: &Ends) -> Result<*mut fi_info, Errno> {
        let encode = |named: &Named| self.format.encode(named).ok_or(libc::ENODATA);
        let source = encode(&ends.source)?;
        let destination = ends.destination.as_ref().map(encode).transpose()?;
        let info = zeroed::<fi_info>()?;
        let (transmit, receive) = (zeroed::<fi_tx_attr>()?, zeroed::<fi_rx_attr>()?);
        let endpoint = zeroed::<fi_ep_attr>()?;
        let (domain, fabric) = (zeroed::<LaterDomain>()?, zeroed::<fi_fabric_attr>()?);
        // SAFETY: all were allocated just now, zeroed, which all of these types may be, and nothing
        // else knows them.
        let (info, transmit, receive, endpoint, domain, fabric) = unsafe {
            (&mut *info, &mut *transmit, &mut *receive, &mut *endpoint, &mut *domain, &mut *fabric)
        };
        transmit.caps = self.caps & TRANSMIT;
        transmit.op_flags = self.transmit_flags;
        transmit.msg_order = self.order;
        transmit.inject_size = INJECT;
        transmit.size = OPERATIONS;
        transmit.iov_limit = PIECES;
        transmit.rma_iov_limit = 1;

        receive.caps = self.caps & RECEIVE;
        receive.op_flags = self.receive_flags;
        receive.msg_order = self.order;
        receive.total_buffered_recv = EAGER;
        receive.size = OPERATIONS;
        receive.iov_limit = PIECES;

        endpoint.r#type = FI_EP_RDM;
        endpoint.protocol = PROTOCOL;
        endpoint.protocol_version = PROTOCOL_VERSION;
        endpoint.max_msg_size = isize::MAX as usize;
        endpoint.mem_tag_format = TAG_FORMAT;
        endpoint.tx_ctx_cnt = 1;
        endpoint.rx_ctx_cnt = 1;

        domain.max_cntr_value = u64::MAX;
        domain.max_err_cntr_value = u64::MAX;
        let domain = &mut domain.known;
        domain.name = name()?;
        domain.threading = self.threading;
        domain.control_progress = self.progress;
        domain.data_progress = self.progress;
        domain.resource_mgmt = FI_RM_ENABLED;
        domain.av_type = self.vector;
        domain.mr_mode = self.memory;
        domain.mr_key_size = 8;
        domain.cq_data_size = 8;
        domain.cq_cnt = 256;
        domain.ep_cnt = 256;
        domain.tx_ctx_cnt = 256;
        domain.rx_ctx_cnt = 256;
        domain.max_ep_tx_ctx = 1;
        domain.max_ep_rx_ctx = 1;
        domain.cntr_cnt = 256;
        domain.mr_iov_limit = 1;
        domain.caps = COMM;
        domain.mr_cnt = 65_536;

        fabric.name = name()?;
        fabric.prov_version = VERSION;
        fabric.api_version = api;

        info.next = ptr::null_mut();
        info.caps = self.caps;
        info.addr_format = self.format.number();
        (info.src_addr, info.src_addrlen) = (copied(&source), source.len());
        if let Some(destination) = destination {
            (info.dest_addr, info.dest_addrlen) = (copied(&destination), destination.len());
        }
        info.tx_attr = transmit;
        info.rx_attr = receive;
        info.ep_attr = endpoint;
        info.domain_attr = domain;
        info.fabric_attr = fabric;
        const { assert!(LEN == FI_NAME_MAX) };
        Ok(info)
    }
}
