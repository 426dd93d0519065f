//! Copying memory that another process may write at the same time.

/// What [`copy_streaming`] moves at a time: a cache line of each of [`STREAMS`] pages in turn.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STREAM_BLOCK: usize = STREAMS * PAGE;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STREAMS: usize = 4;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const PAGE: usize = 4096;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;
/// What the C library copies by registers, on every processor.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const PIECE: usize = 2048;

/// Copies `len` bytes; other processes, or the network, may write to either side meanwhile, and
/// then the bytes that are copied are unspecified, but nothing else is.
///
/// The language's own copies (`copy_nonoverlapping`, slices) assume that nothing else writes: the
/// compiler may read twice, or derive facts from what it read. This calls the C library's `memcpy`
/// through a pointer that the compiler cannot see through, so that the copy happens outside of the
/// language, as a system call's would. A few bytes are copied by assembly.
///
/// # Safety
/// Both ranges must be mapped for the whole call, `src` readable and `dst` writable, and must not
/// overlap. No reference (`&` or `&mut`) to any of the bytes of `dst`, and no `&mut` to those of
/// `src`, may be alive in this process.
#[inline]
pub unsafe fn copy_opaque(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(miri)]
    // SAFETY: the caller's promise; under Miri no other process writes.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, len);
    }
    #[cfg(not(miri))]
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            if len > PIECE {
                return copy_long(src, dst, len);
            }
            if (8..=16).contains(&len) {
                return copy_words(src, dst, len);
            }
        }
        copy_by_library(src, dst, len);
    }
}

/// Copies 8 to 16 bytes: a word from the beginning and one from the end, which may overlap. A
/// counter, a lock, a header: to call a function takes longer. Assembly, as others may write to the
/// memory meanwhile.
///
/// # Safety
/// As for [`copy_opaque`], and `len` is from 8 to 16.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_words(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: both words lie within ranges of `len` bytes, which are mapped: the caller's promise.
    unsafe {
        std::arch::asm!(
            "mov {a}, qword ptr [{s}]",
            "mov {b}, qword ptr [{s} + {n} - 8]",
            "mov qword ptr [{d}], {a}",
            "mov qword ptr [{d} + {n} - 8], {b}",
            s = in(reg) src,
            d = in(reg) dst,
            n = in(reg) len,
            a = out(reg) _,
            b = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// As for [`copy_opaque`].
#[cfg(not(miri))]
#[inline]
unsafe fn copy_by_library(src: *const u8, dst: *mut u8, len: usize) {
    type Memcpy = unsafe extern "C" fn(
        *mut libc::c_void,
        *const libc::c_void,
        libc::size_t,
    ) -> *mut libc::c_void;
    let memcpy: Memcpy = std::hint::black_box(libc::memcpy);
    // SAFETY: the caller's promise is what memcpy asks for.
    unsafe {
        memcpy(dst.cast(), src.cast(), len);
    }
}

/// Apart, so that short copies stay short.
///
/// # Safety
/// As for [`copy_opaque`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
unsafe fn copy_long(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match is_slow_at_once(src, dst) {
            true => copy_in_pieces(src, dst, len),
            false => copy_by_library(src, dst, len),
        }
    }
}

/// Whether a long copy would take many times as long as others. From 2 KiB to about 1 MiB glibc
/// copies by one instruction (`rep movsb`) where the processor calls it fast. Those of AMD (Zen 3
/// and 4) make 3.5 GB/s of it, of 60 to 100, where the target lies up to 15 bytes after the source,
/// each counted from the beginning of its page, and half of it up to 31.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_slow_at_once(src: *const u8, dst: *mut u8) -> bool {
    matches!((dst as usize).wrapping_sub(src as usize) % PAGE, 1..32)
}

/// Copies so much at a time as goes through registers.
///
/// # Safety
/// As for [`copy_opaque`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_in_pieces(src: *const u8, dst: *mut u8, len: usize) {
    // Whole lines of the target from there on.
    let mut end = dst.align_offset(LINE).min(len);
    let mut at = 0;
    while at < len {
        // SAFETY: `at <= end <= len`, so the piece lies within both ranges; the caller's promise
        // for them.
        unsafe { copy_by_library(src.add(at), dst.add(at), end - at) };
        (at, end) = (end, len.min(end + PIECE));
    }
}

/// As [`copy_opaque`], past the caches where the processor can: for so many bytes that `dst` would
/// not stay in them anyway. What is written is then not fetched first, which is a third of the
/// traffic, and four pages at a time keep as many of the prefetcher's streams busy.
///
/// When it returns, other threads and processes see the bytes as after [`copy_opaque`].
///
/// # Safety
/// As for [`copy_opaque`].
pub unsafe fn copy_streaming(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // Stores go by whole lines of the target, so that each leaves the core at once.
        let head = dst.align_offset(LINE).min(len);
        let blocks = (len - head) / STREAM_BLOCK;
        let tail = head + blocks * STREAM_BLOCK;
        // SAFETY: `head <= tail <= len`, so that all of it lies within both ranges; the caller's
        // promise for them. From `head` on the target is aligned to a line, and if that is not
        // possible (`head` is `len`) there is no block.
        unsafe {
            copy_opaque(src, dst, head);
            for at in (head..tail).step_by(STREAM_BLOCK) {
                stream_block(src.add(at), dst.add(at));
            }
            copy_opaque(src.add(tail), dst.add(tail), len - tail);
        }
        // SAFETY: a barrier touches no memory. Streaming stores are not ordered with what follows,
        // as other stores are, and a thread that is told of the data must find it.
        unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise.
    unsafe {
        copy_opaque(src, dst, len);
    }
}

/// Copies [`STREAM_BLOCK`] bytes with streaming stores. Assembly, as others may write to the memory
/// meanwhile: see [`copy_opaque`].
///
/// # Safety
/// As for [`copy_opaque`], and `dst` must be a multiple of 16.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream_block(src: *const u8, dst: *mut u8) {
    // SAFETY: SSE2 belongs to every x86-64. In `PAGE / LINE` rounds each of `STREAMS` pages has a
    // line loaded and stored, which is the block and no byte more; a prefetch reads nothing that
    // any program could see, and does not fault.
    unsafe {
        std::arch::asm!(
            "2:",
            "prefetcht0 [{s} + 256]",
            "movups {a}, [{s}]",
            "movups {b}, [{s} + 16]",
            "movups {c}, [{s} + 32]",
            "movups {e}, [{s} + 48]",
            "movntdq [{d}], {a}",
            "movntdq [{d} + 16], {b}",
            "movntdq [{d} + 32], {c}",
            "movntdq [{d} + 48], {e}",
            "prefetcht0 [{s} + 4096 + 256]",
            "movups {a}, [{s} + 4096]",
            "movups {b}, [{s} + 4096 + 16]",
            "movups {c}, [{s} + 4096 + 32]",
            "movups {e}, [{s} + 4096 + 48]",
            "movntdq [{d} + 4096], {a}",
            "movntdq [{d} + 4096 + 16], {b}",
            "movntdq [{d} + 4096 + 32], {c}",
            "movntdq [{d} + 4096 + 48], {e}",
            "prefetcht0 [{s} + 8192 + 256]",
            "movups {a}, [{s} + 8192]",
            "movups {b}, [{s} + 8192 + 16]",
            "movups {c}, [{s} + 8192 + 32]",
            "movups {e}, [{s} + 8192 + 48]",
            "movntdq [{d} + 8192], {a}",
            "movntdq [{d} + 8192 + 16], {b}",
            "movntdq [{d} + 8192 + 32], {c}",
            "movntdq [{d} + 8192 + 48], {e}",
            "prefetcht0 [{s} + 12288 + 256]",
            "movups {a}, [{s} + 12288]",
            "movups {b}, [{s} + 12288 + 16]",
            "movups {c}, [{s} + 12288 + 32]",
            "movups {e}, [{s} + 12288 + 48]",
            "movntdq [{d} + 12288], {a}",
            "movntdq [{d} + 12288 + 16], {b}",
            "movntdq [{d} + 12288 + 32], {c}",
            "movntdq [{d} + 12288 + 48], {e}",
            "add {s}, 64",
            "add {d}, 64",
            "dec {rounds}",
            "jnz 2b",
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            rounds = inout(reg) PAGE / LINE => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            e = out(xmm_reg) _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes from `at` on copied to `to` in a target of its own, which must not change elsewhere.
    /// Both are counted from the beginning of a page.
    fn copied(copy: unsafe fn(*const u8, *mut u8, usize), at: usize, to: usize, len: usize) {
        let page = |memory: &[u8]| memory.as_ptr().align_offset(4096);
        let source: Vec<u8> = (0..4096 + at + len).map(|i| (i % 251) as u8).collect();
        let at = page(&source) + at;
        let mut target = vec![0xee_u8; 4096 + to + len + 100];
        let to = page(&target) + to;
        // SAFETY: both ranges lie within vectors of their own, and there are no other references.
        unsafe { copy(source.as_ptr().add(at), target.as_mut_ptr().add(to), len) };
        assert!(target[to..to + len] == source[at..at + len], "{len} bytes from {at} to {to}");
        let around = target[..to].iter().chain(&target[to + len..]);
        assert!(around.copied().all(|byte| byte == 0xee), "{len} bytes from {at} to {to}");
    }

    #[test]
    fn all_is_copied_and_no_more() {
        let lengths = [
            0, 1, 7, 8, 9, 12, 15, 16, 17, 63, 64, 65, 2048, 2049, 2110, 4096, 16_383, 16_384,
            16_385, 16_448, 32_768, 100_003,
        ];
        // Neither streams nor pieces are there under Miri.
        for len in lengths.into_iter().take(if cfg!(miri) { 12 } else { lengths.len() }) {
            let places =
                [(0, 0), (1, 0), (0, 1), (7, 33), (64, 63), (13, 16), (100, 131), (50, 82)];
            for (at, to) in places {
                copied(copy_streaming, at, to, len);
                copied(copy_opaque, at, to, len);
            }
        }
    }
}
