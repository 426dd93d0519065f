//! All memory of this process, by its addresses.

use super::{DeviceMemory, Fault, Region, Slice};
use crate::{Access, Endpoint, RegionId, RegisterError};
use std::{io, ptr::NonNull};

/// The whole address space of this process as memory that peers reach, at offsets that are virtual
/// addresses.
///
/// For runtimes whose peers know each other's addresses and are trusted as the process itself is:
/// the processes of one job. Puts and gets are carried out by the kernel on behalf of the owner's
/// endpoint. Where it finds no memory, or none that may be written, they end with `OutOfBounds` at
/// the initiator, and nothing happens to the owner; what lies before such a page may have been
/// written, or not. Memory may be mapped and unmapped meanwhile.
///
/// Rights and keys are as for other regions, but for atomics, which there are none of. A key to a
/// part ([`Endpoint::export_part`]) confines a peer to a range of addresses. As a region it has
/// `isize::MAX` bytes, which is more than there can be memory. It is no local memory of operations.
/// The owner's endpoint serves all accesses, by way of a buffer: each byte is copied once more than
/// from registered memory, by a system call for each fragment.
///
/// ```
/// use petasos_fabric::{Access, Endpoint, memory::AddressSpace};
///
/// // SAFETY: the one key to it stays here.
/// let space = unsafe { AddressSpace::of_process() }?;
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let region = space.register(&mut endpoint, Access::READ)?;
/// let text: &'static [u8] = b"somewhere";
/// let at = text.as_ptr().addr() as u64;
/// let (_, key) = endpoint.export_part(region, at..at + 9, Access::READ)?;
/// assert_eq!(endpoint.import(&key)?.len, 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AddressSpace(Slice);

impl AddressSpace {
    /// The address space of the process that uses it.
    ///
    /// # Errors
    /// If the system has no calls that copy by addresses and tell of bad ones, or denies them
    /// (Linux has: `process_vm_readv` and `process_vm_writev`; some sandboxes deny them).
    ///
    /// # Safety
    /// From its registration until that is closed ([`Done::Deregistered`](crate::Done)), whoever has
    /// a key may read all memory of this process at any time, secrets included; and with the right
    /// to write, change all memory that may be written: the heap's own data, stacks, what safe code
    /// takes for its own. So the program gives keys (or numbers) only to peers that keep to these
    /// rules, as code of this process would: they read and write only what the program, in words of
    /// its own protocol, has told them to; nothing refers to that memory meanwhile (`&` or `&mut`);
    /// and what they write is valid for the type of what lies there. A key to a part with the rights
    /// that are needed makes these promises easier to keep.
    pub unsafe fn of_process() -> io::Result<AddressSpace> {
        let probe = [7u8; 8];
        let mut found = [0; 8];
        read(probe.as_ptr().addr(), &mut found)?;
        Ok(AddressSpace(Region::of_address_space().whole()))
    }

    /// All of it as memory that is copied by [`Slice::try_read`] and [`Slice::try_write`], for a
    /// protocol whose peers name addresses in its messages: that protocol is the key then, and what
    /// [`of_process`](Self::of_process) was promised of keys holds for it. It is no local memory of
    /// operations.
    #[must_use]
    pub fn slice(&self) -> &Slice {
        &self.0
    }

    /// Opens it to remote access, as [`Endpoint::register`] does with other memory.
    ///
    /// # Errors
    /// As [`Endpoint::register`]; [`RegisterError::DeviceAtomics`] with [`Access::ATOMIC`].
    pub fn register<E: Endpoint + ?Sized>(
        &self,
        endpoint: &mut E,
        access: Access,
    ) -> Result<RegionId, RegisterError> {
        endpoint.register(&self.0, access)
    }
}

/// How the memory is reached: by the kernel.
#[derive(Debug)]
pub(super) struct ByKernel;

/// Beyond this there is no memory of a process.
pub(super) const END: usize = isize::MAX as usize;

impl DeviceMemory for ByKernel {
    fn len(&self) -> usize {
        END
    }

    fn address(&self) -> NonNull<u8> {
        NonNull::dangling()
    }

    /// # Panics
    /// If there is no such memory.
    fn read(&self, offset: usize, into: &mut [u8]) {
        self.try_read(offset, into).expect("memory that is there");
    }

    /// # Panics
    /// If there is no such memory.
    fn write(&self, offset: usize, from: &[u8]) {
        self.try_write(offset, from).expect("memory that is there");
    }

    fn try_read(&self, offset: usize, into: &mut [u8]) -> Result<(), Fault> {
        read(offset, into).map_err(|_| Fault)
    }

    fn try_write(&self, offset: usize, from: &[u8]) -> Result<(), Fault> {
        write(offset, from).map_err(|_| Fault)
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod system {
    use std::{io, ptr};

    fn vector(at: usize, len: usize) -> libc::iovec {
        // A number, for the kernel: nothing here goes there.
        libc::iovec { iov_base: ptr::without_provenance_mut(at), iov_len: len }
    }

    /// How many bytes a call has moved. None is as bad as an error.
    fn moved(result: libc::ssize_t) -> io::Result<usize> {
        match usize::try_from(result) {
            Err(_) => Err(io::Error::last_os_error()),
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(moved) => Ok(moved),
        }
    }

    pub(super) fn read(at: usize, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let rest = &mut into[done..];
            let here = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
            let there = vector(at.wrapping_add(done), rest.len());
            // SAFETY: the kernel writes to `rest`, which is exclusive, and no more than it holds;
            // both vectors have one entry. It reads the other range of this very process through its
            // page tables, as another process would: an address that is not mapped is an error.
            done +=
                moved(unsafe { libc::process_vm_readv(libc::getpid(), &here, 1, &there, 1, 0) })?;
        }
        Ok(())
    }

    pub(super) fn write(at: usize, from: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < from.len() {
            let rest = &from[done..];
            let here =
                libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
            let there = vector(at.wrapping_add(done), rest.len());
            // SAFETY: the kernel only reads `rest`; both vectors have one entry. That it writes to
            // the other range is what `AddressSpace::of_process` was promised to be right; pages
            // that are not mapped, or not to be written, are an error.
            done +=
                moved(unsafe { libc::process_vm_writev(libc::getpid(), &here, 1, &there, 1, 0) })?;
        }
        Ok(())
    }
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(miri))))]
mod system {
    use std::io;

    pub(super) fn read(_: usize, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn write(_: usize, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

use system::{read, write};

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn bad_addresses_are_errors() {
        let memory = Region::zeroed(100_000);
        let at = memory.as_ptr().addr();
        let space = ByKernel;
        space.try_write(at + 7, &[5; 90_000]).unwrap();
        let mut back = vec![0; 90_002];
        space.try_read(at + 6, &mut back).unwrap();
        assert_eq!((back[0], back[1], back[90_000], back[90_001]), (0, 5, 5, 0));
        for bad in [0, 8, 4096, END - 100] {
            assert_eq!(space.try_read(bad, &mut [0; 8]), Err(Fault), "at {bad:#x}");
            assert_eq!(space.try_write(bad, &[0; 8]), Err(Fault), "at {bad:#x}");
        }
        // Code may be read, and not written.
        let code = (bad_addresses_are_errors as fn()) as usize;
        space.try_read(code, &mut [0; 4]).unwrap();
        assert_eq!(space.try_write(code, &[0; 4]), Err(Fault));
        assert!(space.try_read(0, &mut []).is_ok());
    }

    #[test]
    fn a_region_that_is_no_memory() {
        let region = Region::of_address_space();
        assert_eq!((region.kind(), region.len()), (crate::memory::Kind::AddressSpace, END));
        assert!(region.host_ptr().is_none() && !region.whole().takes_atomics());
        let memory = Region::from_vec(vec![1, 2, 3, 4]);
        let part = region.slice(memory.as_ptr().addr() + 1, 2).unwrap();
        assert_eq!((part.to_vec(), part.offset()), (vec![2, 3], memory.as_ptr().addr() + 1));
        let target = Region::zeroed(2).whole();
        assert_eq!(part.try_copy_to(&target), Ok(2));
        let bad = region.slice(4096, 2).unwrap();
        assert_eq!(bad.try_copy_to(&target), Err(Fault));
        assert_eq!(target.try_copy_to(&bad), Err(Fault));
        assert_eq!(target.to_vec(), [2, 3]);
    }
}
