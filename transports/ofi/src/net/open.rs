//! Making the library's objects, and closing them.

use super::{
    Details, Net,
    batch::Batch,
    handle::Handle,
    objects::{self, Objects},
    slabs::Slabs,
    slots::{Contexts, Slots},
    spin::SpinLock,
};
use crate::{
    OpenError, leftovers,
    sys::{
        FI_AV_TABLE, FI_CQ_FORMAT_DATA, FI_ENABLE, FI_GETWAIT, FI_MR_ENDPOINT, FI_MR_PROV_KEY,
        FI_MR_VIRT_ADDR, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, FI_RECV, FI_TRANSMIT, FI_WAIT_FD,
        FI_WAIT_NONE, environment, fi_av_attr, fi_cq_attr, fid_fabric, offer::Offer,
    },
};
use petasos_datagram::{self as datagram, Facts, Nodes};
use petasos_fabric::Enforcement;
use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
    mem::{self, ManuallyDrop},
    ptr,
    sync::{Arc, Mutex},
};

/// The layer asks for 128 completions of sends for each of `FI_UNIVERSE_SIZE` peers, and 4096 more.
const SMALL_DEVICE: &str = " (a device with few entries in its completion queues, as soft-RoCE: set FI_UNIVERSE_SIZE=128 \
                            in the environment, or less)";

/// Sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The longest packet.
    pub(super) packet: usize,
    /// The longest payload of one.
    pub(super) fragment: usize,
    /// Sends and accesses under way at a time, at most.
    pub(super) sends: usize,
    /// Slabs for receiving, and the bytes of each; where messages do not share slabs, so many more.
    pub(super) slabs: usize,
    /// See above.
    pub(super) slab: usize,
}

/// What is used for remote access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    /// Whether there is any.
    pub(super) access: bool,
    /// Bits of completion data of writes.
    pub(super) data_bits: u32,
}

impl Net {
    /// Opens what the offer describes.
    pub(super) fn open_offer(
        offer: &Offer,
        sizes: Sizes,
        enforcement: Enforcement,
        remote: Remote,
    ) -> Result<Net, OpenError> {
        let library = offer.library();
        let failed = |call: &'static str| {
            move |code: isize| OpenError::Fabric {
                provider: offer.provider(),
                call,
                reason: library.error(code),
                advice: match offer.layered_on_device() && call == "fi_enable" {
                    true => SMALL_DEVICE,
                    false => "",
                },
            }
        };
        if offer.max_message() < sizes.packet {
            return Err(failed("the longest message")(-(libc::EMSGSIZE as isize)));
        }
        if let Some(setting) = environment::missing().filter(|_| offer.layered_on_device()) {
            return Err(OpenError::Environment { provider: offer.provider(), setting });
        }
        let info = offer.as_ptr();
        let context = ptr::null_mut();
        // SAFETY: here, and below where it says "as above": the description is whole and lives
        // beyond the call; the objects were made by the calls before, and are open; what is passed
        // by pointer lives beyond the call, which keeps none of it.
        let fabric = unsafe {
            let mut object = ptr::null_mut::<fid_fabric>();
            let code = (library.fabric)((*info).fabric_attr.cast(), &mut object, context);
            Handle::new(code, object).map_err(failed("fi_fabric"))?
        };
        // SAFETY: as above.
        let domain = unsafe {
            let mut object = ptr::null_mut();
            let code =
                ((*(*fabric.as_ptr()).ops).domain)(fabric.as_ptr(), info, &mut object, context);
            Handle::new(code, object).map_err(failed("fi_domain"))?
        };
        // SAFETY: as above.
        let av = unsafe {
            let mut attr = fi_av_attr {
                r#type: if offer.av_type() == 0 { FI_AV_TABLE } else { offer.av_type() },
                rx_ctx_bits: 0,
                count: 0,
                ep_per_node: 0,
                name: ptr::null(),
                map_addr: ptr::null_mut(),
                flags: 0,
            };
            let mut object = ptr::null_mut();
            let code = ((*(*domain.as_ptr()).ops).av_open)(
                domain.as_ptr(),
                &mut attr,
                &mut object,
                context,
            );
            Handle::new(code, object).map_err(failed("fi_av_open"))?
        };
        let queue = |wait_obj: c_int| {
            let mut attr = fi_cq_attr {
                size: sizes.sends.max(1024),
                flags: 0,
                format: FI_CQ_FORMAT_DATA,
                wait_obj,
                signaling_vector: 0,
                wait_cond: 0,
                wait_set: ptr::null_mut(),
            };
            // SAFETY: as above.
            unsafe {
                let mut object = ptr::null_mut();
                let code = ((*(*domain.as_ptr()).ops).cq_open)(
                    domain.as_ptr(),
                    &mut attr,
                    &mut object,
                    context,
                );
                Handle::new(code, object)
            }
        };
        // With something to sleep on, where the provider has it.
        let (cq, mut wait) = match queue(FI_WAIT_FD) {
            Ok(cq) => (cq, Some(-1)),
            Err(_) => (queue(FI_WAIT_NONE).map_err(failed("fi_cq_open"))?, None),
        };
        if let Some(fd) = &mut wait {
            // SAFETY: as above; the answer is a descriptor, which stays the queue's.
            let code = unsafe {
                ((*(*cq.fid()).ops).control)(
                    cq.fid(),
                    FI_GETWAIT,
                    ptr::from_mut::<c_int>(fd).cast(),
                )
            };
            if code != 0 || *fd < 0 {
                wait = None;
            }
        }
        // SAFETY: as above.
        let ep = unsafe {
            let mut object = ptr::null_mut();
            let code =
                ((*(*domain.as_ptr()).ops).endpoint)(domain.as_ptr(), info, &mut object, context);
            Handle::new(code, object).map_err(failed("fi_endpoint"))?
        };
        let check =
            |code: c_int, call| if code == 0 { Ok(()) } else { Err(failed(call)(code as isize)) };
        let shares_memory = offer.provider() == "shm";
        // SAFETY: as above. The endpoint is closed before what it is bound to: locals are dropped
        // from the last to the first, and the fields of `Net` in their order.
        unsafe {
            let bind = (*(*ep.fid()).ops).bind;
            check(bind(ep.fid(), av.fid(), 0), "fi_ep_bind to addresses")?;
            check(bind(ep.fid(), cq.fid(), FI_TRANSMIT | FI_RECV), "fi_ep_bind to completions")?;
        }
        let making = shares_memory.then(|| {
            leftovers::sweep();
            // A name that was never used before: the provider's own are made of the number of the
            // process.
            (leftovers::name(), leftovers::making())
        });
        // SAFETY: as above. The name is copied.
        unsafe {
            if let Some((name, _)) = &making {
                let name = format!("{name}\0");
                let set = (*(*ep.as_ptr()).cm).setname;
                check(set(ep.fid(), name.as_ptr().cast_mut().cast(), name.len()), "fi_setname")?;
            }
            check(((*(*ep.fid()).ops).control)(ep.fid(), FI_ENABLE, context), "fi_enable")?;
        }
        let held = match making {
            Some((name, making)) => making.hold(&name).map_err(|error| {
                failed("memory in /dev/shm")(-(error.raw_os_error().unwrap_or(libc::EIO) as isize))
            })?,
            None => None,
        };
        // Over a network each message has memory of its own: there the providers lose the end of
        // memory for several whose last one fails, when its sender is killed, and so all of it.
        let multi = shares_memory && offer.has_multi_recv();
        if multi {
            // SAFETY: as above.
            unsafe {
                let least = sizes.packet;
                let set = (*(*ep.as_ptr()).ops).setopt;
                let at = ptr::from_ref(&least).cast::<c_void>();
                let len = size_of_val(&least);
                let code = set(ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, at, len);
                check(code, "fi_setopt of the least room for a message")?;
            }
        }
        let mut name = vec![0u8; 512];
        let mut len = name.len();
        // SAFETY: as above; at most `len` bytes are written, and `len` says how many there are.
        let code =
            unsafe { ((*(*ep.as_ptr()).cm).getname)(ep.fid(), name.as_mut_ptr().cast(), &mut len) };
        check(code, "fi_getname")?;
        name.truncate(len);
        let (count, slab) = match multi {
            true => (sizes.slabs, sizes.slab),
            // A packet each.
            false => ((sizes.slabs * sizes.slab / sizes.packet).min(256), sizes.packet),
        };
        let sends = sizes.sends.min(offer.tx_size().max(16));
        let memory = offer.memory();
        let facts = Facts {
            protocol: offer.provider(),
            fragment: sizes.fragment,
            inject: offer.inject_size(),
            access: remote.access.then(|| offer.max_message().min(1 << 30)),
            data_bits: remote.data_bits,
            // Over TCP two writes to a socket, and an answer to each, cost more than the copies of
            // one packet.
            completion_data_from: if shares_memory { 4 << 10 } else { u64::MAX },
            enforcement,
        };
        let details = Details {
            pieces: offer.iov_limit().clamp(1, 8),
            multi,
            rma: remote.access,
            virtual_addresses: memory & FI_MR_VIRT_ADDR != 0,
            provider_keys: memory & FI_MR_PROV_KEY != 0,
            bound_memory: memory & FI_MR_ENDPOINT != 0,
            // So that it can fetch long messages.
            all_readable: offer.provider().ends_with("ofi_rxm"),
            socket_names: (1..=4).contains(&offer.address_format()),
            key_bits: (offer.key_size().clamp(1, 8) * 8) as u32,
        };
        let slots = Slots::new(sends);
        let contexts = Contexts::new(sends, count);
        let slabs = Slabs::new(count, slab);
        let memory = [slots.memory(), contexts.memory()].into_iter().chain(slabs.memory());
        let (at, queue) = (ep.as_ptr(), cq.as_ptr());
        let ep = ManuallyDrop::new(ep);
        let memory = Mutex::new(memory.collect());
        let objects = Arc::new(Objects { ep, cq, av, domain, fabric, memory, _held: held });
        let visitors = Arc::default();
        if shares_memory {
            objects::announce(&name, &objects, &visitors);
        }
        let mut net = Net {
            ep: at,
            cq: queue,
            objects,
            nodes: Nodes::default(),
            entries: HashMap::new(),
            opened: datagram::Objects::default(),
            last: Vec::new(),
            visitors,
            slots,
            contexts,
            sends,
            slabs,
            failed: 0,
            batch: Batch::new(),
            scratch: vec![0; offer.inject_size().max(64)].into_boxed_slice(),
            library,
            remote_only: shares_memory && library.major() >= 2,
            lock: if shares_memory { SpinLock::own(library, &name) } else { None },
            name,
            wait,
            facts,
            details,
        };
        net.repost();
        Ok(net)
    }

    /// Whether one may sleep on the descriptor: nothing is waiting to be polled.
    pub(super) fn may_wait(&self) -> bool {
        let mut fids = [self.objects.cq.fid()];
        // SAFETY: the fabric is open, and so is the one object in the list.
        let code = unsafe {
            ((*(*self.objects.fabric.as_ptr()).ops).trywait)(
                self.objects.fabric.as_ptr(),
                fids.as_mut_ptr(),
                1,
            )
        };
        code == 0
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for memory in self.opened.all() {
            self.last.extend(memory.close());
        }
        // Memory that peers still fetch from is leaked: they would read whatever is there later.
        if self.slots.running() > 0 {
            mem::forget(mem::replace(&mut self.slots, Slots::new(0)));
        }
    }
}
