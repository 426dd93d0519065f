//! `fi_ops_rma` and `fi_ops_atomic`: access to the memory of peers.

use super::{
    domain,
    endpoint::Side,
    local,
    object::{get, int, size},
};
use crate::{
    limits::INJECT,
    state::{Access, Kind, error::Errno},
};
use petasos_fabric::{AtomicOp, AtomicType, Region, Slice, operation::Slices};
use petasos_ofi_sys::*;
use smallvec::SmallVec;
use std::{
    ffi::{c_int, c_void},
    mem,
};

pub(super) static RMA: fi_ops_rma = fi_ops_rma {
    size: mem::size_of::<fi_ops_rma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

pub(super) static ATOMIC: fi_ops_atomic = fi_ops_atomic {
    size: mem::size_of::<fi_ops_atomic>(),
    write: atomic,
    writev: atomicv,
    writemsg: atomicmsg,
    inject: inject_atomic,
    readwrite: fetch,
    readwritev: fetchv,
    readwritemsg: fetchmsg,
    compwrite: compare,
    compwritev: comparev,
    compwritemsg: comparemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// What the flags of an operation may be.
const FLAGS: u64 = FI_MORE
    | FI_FENCE
    | FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_REMOTE_CQ_DATA;

/// The longest operand of an atomic, in bytes: what all transports below take.
const LONGEST: usize = 64;

/// Where in which memory of a peer's.
#[derive(Clone, Copy)]
struct There {
    to: fi_addr_t,
    address: u64,
    key: u64,
}

/// The flags of an operation: those that it was given, those of its endpoint, or of `fi_inject`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flags {
    Own(u64),
    Endpoint,
    Inject,
}

/// Begins an access.
///
/// # Safety
/// `ep` is null or an endpoint that is open.
unsafe fn begin(
    ep: *mut fid_ep,
    there: There,
    kind: Result<Kind, Errno>,
    context: *mut c_void,
    flags: Flags,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    let of = unsafe { get::<Side, _>(ep) }?;
    let mut kind = kind?;
    let mut state = of.domain.lock();
    let (endpoint, shared) = state.endpoint(of.at);
    let own = match flags {
        Flags::Own(flags) if flags & !FLAGS != 0 => return Err(FI_EBADFLAGS),
        Flags::Own(flags) => flags,
        Flags::Endpoint => endpoint.transmit_flags,
        Flags::Inject => FI_INJECT,
    };
    if let Kind::Put { local, .. } = &mut kind
        && own & FI_INJECT != 0
    {
        let len = local.iter().map(Slice::len).sum();
        if len <= INJECT {
            *local = copied(local, len);
        } else if flags != Flags::Endpoint {
            return Err(libc::EINVAL);
        }
    }
    let mut access = Access::new(there.to, there.key, there.address, kind);
    access.context = context.addr();
    access.fence = own & FI_FENCE != 0;
    access.report = flags != Flags::Inject && endpoint.transmit.reports(own);
    let begun = endpoint.access(shared, access);
    if begun == Err(libc::EAGAIN) {
        endpoint.progress(shared);
    }
    state.kick();
    begun.map(|()| 0)
}

/// The program's memory is its own again when this returns.
fn copied(local: &Slices, len: usize) -> Slices {
    let mut bytes = vec![0; len];
    let mut at = 0;
    for piece in local {
        piece.read(0, &mut bytes[at..at + piece.len()]);
        at += piece.len();
    }
    match len {
        0 => Slices::new(),
        _ => [Region::from_vec(bytes).whole()].into(),
    }
}

fn put(local: Result<Slices, Errno>, data: Option<u64>) -> Result<Kind, Errno> {
    local.map(|local| Kind::Put { local, data })
}

fn get_into(local: Result<Slices, Errno>) -> Result<Kind, Errno> {
    local.map(|local| Kind::Get { local })
}

/// The only remote piece of a message.
///
/// # Safety
/// As [`local::list`].
unsafe fn only(message: &fi_msg_rma) -> Result<There, Errno> {
    // SAFETY: the caller's promise.
    match unsafe { local::list(message.rma_iov, message.rma_iov_count) }? {
        [one] => Ok(There { to: message.addr, address: one.addr, key: one.key }),
        _ => Err(libc::EINVAL),
    }
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    at: *mut c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let there = There { to, address, key };
    // SAFETY: the program gives an endpoint, and memory that stays until the completion.
    size(|| unsafe { begin(ep, there, get_into(local::one(at, len)), context, Flags::Endpoint) })
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    pieces: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let there = There { to, address, key };
    // SAFETY: as above.
    size(|| unsafe {
        begin(ep, there, get_into(local::vector(pieces, count)), context, Flags::Endpoint)
    })
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as above; and a message, or null.
    size(|| unsafe {
        let of = message.as_ref().ok_or(libc::EINVAL)?;
        let kind = get_into(local::vector(of.msg_iov, of.iov_count));
        begin(ep, only(of)?, kind, of.context, Flags::Own(flags))
    })
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let there = There { to, address, key };
    // SAFETY: as above.
    size(|| unsafe { begin(ep, there, put(local::one(at, len), None), context, Flags::Endpoint) })
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    pieces: *const libc::iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let there = There { to, address, key };
    // SAFETY: as above.
    size(|| unsafe {
        begin(ep, there, put(local::vector(pieces, count), None), context, Flags::Endpoint)
    })
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as above; and a message, or null.
    size(|| unsafe {
        let of = message.as_ref().ok_or(libc::EINVAL)?;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(of.data);
        let kind = put(local::vector(of.msg_iov, of.iov_count), data);
        begin(ep, only(of)?, kind, of.context, Flags::Own(flags))
    })
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    to: fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    let (there, none) = (There { to, address, key }, std::ptr::null_mut());
    // SAFETY: the program gives an endpoint, and memory that stays until this returns.
    size(|| unsafe { begin(ep, there, put(local::one(at, len), None), none, Flags::Inject) })
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let there = There { to, address, key };
    // SAFETY: as for `write`.
    size(|| unsafe {
        begin(ep, there, put(local::one(at, len), Some(data)), context, Flags::Endpoint)
    })
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    at: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    let (there, none) = (There { to, address, key }, std::ptr::null_mut());
    // SAFETY: as for `inject`.
    size(|| unsafe { begin(ep, there, put(local::one(at, len), Some(data)), none, Flags::Inject) })
}

/// The fabric's type.
fn kind_of(datatype: c_int) -> Option<AtomicType> {
    Some(match datatype {
        FI_INT8 => AtomicType::I8,
        FI_UINT8 => AtomicType::U8,
        FI_INT16 => AtomicType::I16,
        FI_UINT16 => AtomicType::U16,
        FI_INT32 => AtomicType::I32,
        FI_UINT32 => AtomicType::U32,
        FI_INT64 => AtomicType::I64,
        FI_UINT64 => AtomicType::U64,
        FI_FLOAT => AtomicType::F32,
        FI_DOUBLE => AtomicType::F64,
        _ => return None,
    })
}

/// How an atomic is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Write,
    Fetch,
    Compare,
}

/// The fabric's operation, if it has it in this form and for this type.
fn op_of(op: c_int, of: AtomicType, form: Form) -> Option<AtomicOp> {
    let float = matches!(of, AtomicType::F32 | AtomicType::F64);
    let op = match op {
        FI_MIN => AtomicOp::Min,
        FI_MAX => AtomicOp::Max,
        FI_SUM => AtomicOp::Sum,
        FI_PROD => AtomicOp::Product,
        FI_LOR => AtomicOp::LogicalOr,
        FI_LAND => AtomicOp::LogicalAnd,
        FI_LXOR => AtomicOp::LogicalXor,
        FI_BOR if !float => AtomicOp::Or,
        FI_BAND if !float => AtomicOp::And,
        FI_BXOR if !float => AtomicOp::Xor,
        FI_ATOMIC_WRITE => AtomicOp::Swap,
        FI_ATOMIC_READ if form == Form::Fetch => AtomicOp::Read,
        FI_CSWAP if form == Form::Compare => AtomicOp::CompareSwap,
        _ => return None,
    };
    (form != Form::Compare || op == AtomicOp::CompareSwap).then_some(op)
}

/// What is done by an atomic, and on what.
#[derive(Clone, Copy)]
struct What {
    datatype: c_int,
    op: c_int,
    form: Form,
}

impl What {
    fn check(self) -> Result<(AtomicType, AtomicOp), Errno> {
        let of = kind_of(self.datatype).ok_or(libc::EOPNOTSUPP)?;
        Ok((of, op_of(self.op, of, self.form).ok_or(libc::EOPNOTSUPP)?))
    }

    /// The bytes of an element.
    fn element(self) -> Result<usize, Errno> {
        self.check().map(|(of, _)| of.size())
    }

    fn kind(
        self,
        operand: Slices,
        compare: Option<Slices>,
        result: Option<Slices>,
    ) -> Result<Kind, Errno> {
        let (of, op) = self.check()?;
        let len = |pieces: &Slices| -> usize { pieces.iter().map(Slice::len).sum() };
        let size = result.as_ref().map_or(0, len).max(len(&operand));
        let reads = op == AtomicOp::Read;
        let whole = size > 0 && size <= LONGEST;
        let same = result.as_ref().is_none_or(|it| len(it) == size)
            && compare.as_ref().is_none_or(|it| len(it) == size)
            && (reads || len(&operand) == size);
        if !whole || !same {
            return Err(libc::EINVAL);
        }
        let bytes = |pieces: &Slices| {
            let mut out = SmallVec::<[u8; 16]>::new();
            for piece in pieces {
                let at = out.len();
                out.resize(at + piece.len(), 0);
                piece.read(0, &mut out[at..]);
            }
            out
        };
        // A read has no operand; it says how much is read.
        let operand = if reads { SmallVec::from_elem(0, size) } else { bytes(&operand) };
        let compare = compare.as_ref().map_or_else(SmallVec::new, bytes);
        Ok(Kind::Atomic { op, of, operand, compare, fetch: result })
    }
}

/// `count` elements.
///
/// # Safety
/// As [`local::one`].
unsafe fn elements(at: *const c_void, count: usize, size: usize) -> Result<Slices, Errno> {
    let len = count.checked_mul(size).ok_or(libc::EINVAL)?;
    // SAFETY: the caller's promise.
    unsafe { local::one(at, len) }
}

unsafe extern "C" fn atomic(
    ep: *mut fid_ep,
    at: *const c_void,
    count: usize,
    _: *mut c_void,
    to: fi_addr_t,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (there, what) = (There { to, address, key }, What { datatype, op, form: Form::Write });
    // SAFETY: the program gives an endpoint, and memory that is read before this returns.
    size(|| unsafe {
        let operand = elements(at, count, what.element()?)?;
        begin(ep, there, what.kind(operand, None, None), context, Flags::Endpoint)
    })
}

unsafe extern "C" fn atomicv(
    ep: *mut fid_ep,
    pieces: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (there, what) = (There { to, address, key }, What { datatype, op, form: Form::Write });
    // SAFETY: as above.
    size(|| unsafe {
        let operand = local::elements(pieces, count, what.element()?)?;
        begin(ep, there, what.kind(operand, None, None), context, Flags::Endpoint)
    })
}

/// The parts of a message.
///
/// # Safety
/// The message is null, or there with all that it points to.
unsafe fn parts<'a>(
    message: *const fi_msg_atomic,
    form: Form,
) -> Result<(&'a fi_msg_atomic, There, What, Slices), Errno> {
    // SAFETY: the caller's promise.
    unsafe {
        let of = message.as_ref().ok_or(libc::EINVAL)?;
        let what = What { datatype: of.datatype, op: of.op, form };
        let there = match local::list(of.rma_iov, of.rma_iov_count)? {
            [one] => There { to: of.addr, address: one.addr, key: one.key },
            _ => return Err(libc::EINVAL),
        };
        let reads = of.op == FI_ATOMIC_READ;
        let operand = match reads {
            true => Slices::new(),
            false => local::elements(of.msg_iov, of.iov_count, what.element()?)?,
        };
        Ok((of, there, what, operand))
    }
}

unsafe extern "C" fn atomicmsg(
    ep: *mut fid_ep,
    message: *const fi_msg_atomic,
    flags: u64,
) -> isize {
    // SAFETY: as above; and a message, or null.
    size(|| unsafe {
        let (of, there, what, operand) = parts(message, Form::Write)?;
        begin(ep, there, what.kind(operand, None, None), of.context, Flags::Own(flags))
    })
}

unsafe extern "C" fn inject_atomic(
    ep: *mut fid_ep,
    at: *const c_void,
    count: usize,
    to: fi_addr_t,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    let (there, what) = (There { to, address, key }, What { datatype, op, form: Form::Write });
    // SAFETY: as above.
    size(|| unsafe {
        let operand = elements(at, count, what.element()?)?;
        let kind = what.kind(operand, None, None);
        begin(ep, there, kind, std::ptr::null_mut(), Flags::Inject)
    })
}

unsafe extern "C" fn fetch(
    ep: *mut fid_ep,
    at: *const c_void,
    count: usize,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: fi_addr_t,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (there, what) = (There { to, address, key }, What { datatype, op, form: Form::Fetch });
    // SAFETY: as above, and memory for the result that stays until the completion.
    size(|| unsafe {
        let element = what.element()?;
        let operand = match op {
            FI_ATOMIC_READ => Slices::new(),
            _ => elements(at, count, element)?,
        };
        let result = elements(result, count, element)?;
        begin(ep, there, what.kind(operand, None, Some(result)), context, Flags::Endpoint)
    })
}

unsafe extern "C" fn fetchv(
    ep: *mut fid_ep,
    pieces: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    to: fi_addr_t,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (there, what) = (There { to, address, key }, What { datatype, op, form: Form::Fetch });
    // SAFETY: as above.
    size(|| unsafe {
        let element = what.element()?;
        let operand = match op {
            FI_ATOMIC_READ => Slices::new(),
            _ => local::elements(pieces, count, element)?,
        };
        let result = local::elements(results, result_count, element)?;
        begin(ep, there, what.kind(operand, None, Some(result)), context, Flags::Endpoint)
    })
}

unsafe extern "C" fn fetchmsg(
    ep: *mut fid_ep,
    message: *const fi_msg_atomic,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as above; and a message, or null.
    size(|| unsafe {
        let (of, there, what, operand) = parts(message, Form::Fetch)?;
        let result = local::elements(results, result_count, what.element()?)?;
        let kind = what.kind(operand, None, Some(result));
        begin(ep, there, kind, of.context, Flags::Own(flags))
    })
}

unsafe extern "C" fn compare(
    ep: *mut fid_ep,
    at: *const c_void,
    count: usize,
    _: *mut c_void,
    with: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: fi_addr_t,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (there, what) = (There { to, address, key }, What { datatype, op, form: Form::Compare });
    // SAFETY: as for `fetch`.
    size(|| unsafe {
        let element = what.element()?;
        let operand = elements(at, count, element)?;
        let (with, result) = (elements(with, count, element)?, elements(result, count, element)?);
        begin(ep, there, what.kind(operand, Some(with), Some(result)), context, Flags::Endpoint)
    })
}

unsafe extern "C" fn comparev(
    ep: *mut fid_ep,
    pieces: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    with: *const fi_ioc,
    _: *mut *mut c_void,
    with_count: usize,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    to: fi_addr_t,
    address: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let (there, what) = (There { to, address, key }, What { datatype, op, form: Form::Compare });
    // SAFETY: as above.
    size(|| unsafe {
        let element = what.element()?;
        let operand = local::elements(pieces, count, element)?;
        let with = local::elements(with, with_count, element)?;
        let result = local::elements(results, result_count, element)?;
        begin(ep, there, what.kind(operand, Some(with), Some(result)), context, Flags::Endpoint)
    })
}

unsafe extern "C" fn comparemsg(
    ep: *mut fid_ep,
    message: *const fi_msg_atomic,
    with: *const fi_ioc,
    _: *mut *mut c_void,
    with_count: usize,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as above; and a message, or null.
    size(|| unsafe {
        let (of, there, what, operand) = parts(message, Form::Compare)?;
        let element = what.element()?;
        let with = local::elements(with, with_count, element)?;
        let result = local::elements(results, result_count, element)?;
        let kind = what.kind(operand, Some(with), Some(result));
        begin(ep, there, kind, of.context, Flags::Own(flags))
    })
}

/// How many elements an atomic may have.
///
/// # Safety
/// `ep` is null or an endpoint that is open, `count` null or a place for a number.
unsafe fn valid(ep: *mut fid_ep, what: What, count: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    int(|| unsafe {
        get::<Side, _>(ep)?;
        let element = what.element()?;
        if let Some(count) = count.as_mut() {
            *count = LONGEST / element;
        }
        Ok(0)
    })
}

unsafe extern "C" fn writevalid(
    ep: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: an endpoint or null, and a place or null.
    unsafe { valid(ep, What { datatype, op, form: Form::Write }, count) }
}

unsafe extern "C" fn readwritevalid(
    ep: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: an endpoint or null, and a place or null.
    unsafe { valid(ep, What { datatype, op, form: Form::Fetch }, count) }
}

unsafe extern "C" fn compwritevalid(
    ep: *mut fid_ep,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: an endpoint or null, and a place or null.
    unsafe { valid(ep, What { datatype, op, form: Form::Compare }, count) }
}

/// Whether there is such an atomic.
pub(super) unsafe extern "C" fn query_atomic(
    domain: *mut fid_domain,
    datatype: c_int,
    op: c_int,
    out: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    // SAFETY: a domain or null, and a place or null.
    int(|| unsafe {
        domain::of(domain)?;
        let form = match flags {
            0 => Form::Write,
            FI_FETCH_ATOMIC => Form::Fetch,
            FI_COMPARE_ATOMIC => Form::Compare,
            _ => return Err(FI_EBADFLAGS),
        };
        let element = What { datatype, op, form }.element()?;
        let out = out.as_mut().ok_or(libc::EINVAL)?;
        (out.size, out.count) = (element, LONGEST / element);
        Ok(0)
    })
}
