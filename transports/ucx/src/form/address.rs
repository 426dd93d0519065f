//! Addresses of workers: which of them may be given to UCX. Their grammar is in [`super::grammar`].

use super::{
    grammar::{Entry, Parsed, RELEASES, WORKER, crc16, parse},
    segment::{self, Found, Maker},
};
use std::sync::{Mutex, PoisonError};

/// In an index of a memory domain: flags of releases before 1.19.
const LEGACY: u8 = 0x60;
/// The last release with [`LEGACY`] flags.
const LAST_LEGACY: u32 = 18;

/// What UCX's transports have for addresses, as far as it is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Tcp,
    Shared(Maker),
    Cma,
    /// On a NIC.
    Other,
}

/// What addresses of workers look like that may be given to UCX.
#[derive(Debug)]
pub struct AddressForm {
    own: Vec<u8>,
    /// Whether an index follows the attributes of a transport.
    indexed: bool,
    /// Whether all is of this node and of one version of UCX, so that addresses differ in their
    /// values alone.
    node: bool,
    /// Checksums of the names of the transports.
    names: Vec<(u16, Known)>,
    /// The second part of the library's version.
    minor: u32,
    /// Our own shared memory, by transport, with its number.
    segments: Vec<(Maker, u64, Found)>,
}

/// Addresses of the workers of this process. An address that names this process, or memory that it
/// made, means one of them, or wants it to write over its own memory.
static OURS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn ours<T>(with: impl FnOnce(&mut Vec<Vec<u8>>) -> T) -> T {
    with(&mut OURS.lock().unwrap_or_else(PoisonError::into_inner))
}

impl AddressForm {
    /// That of this address, which the library packed, version 1.`minor`, with these transports
    /// (`UCX_TLS`). `None` if it is none that is known here.
    #[must_use]
    pub fn of(own: &[u8], transports: &str, minor: u32) -> Option<AddressForm> {
        let known = |name: &str| match name {
            "tcp" => Known::Tcp,
            "posix" => Known::Shared(Maker::Posix),
            "sysv" => Known::Shared(Maker::Sysv),
            "cma" => Known::Cma,
            _ => Known::Other,
        };
        let names = transports.split(',').map(|name| (crc16(name.as_bytes()), known(name)));
        let names: Vec<_> = names.filter(|(_, known)| *known != Known::Other).collect();
        let mut form = AddressForm {
            own: own.to_vec(),
            indexed: false,
            node: !names.is_empty() && names.iter().all(|(_, known)| *known != Known::Tcp),
            names,
            minor,
            segments: Vec::new(),
        };
        let own = match parse(own, false) {
            Some(own) if form.is_known(&own) => own,
            _ => {
                form.indexed = true;
                parse(own, true).filter(|own| form.is_known(own))?
            }
        };
        let of = |entry: &Entry<'_>| {
            let (maker, number, rest) = form.segment(entry)?;
            Some((maker, number, segment::find(maker, number, rest)?))
        };
        form.segments = own.entries.iter().filter_map(of).collect();
        ours(|ours| ours.push(form.own.clone()));
        Some(form)
    }

    /// Whether a process has written into our own shared memory, as far as that can be seen.
    pub(crate) fn is_written_to(&self) -> bool {
        let own = parse(&self.own, self.indexed).map(|own| own.entries).unwrap_or_default();
        own.iter().filter_map(|entry| self.segment(entry)).any(|(maker, number, rest)| {
            segment::taken(maker, number, rest).is_some_and(|taken| taken != 0)
        })
    }

    /// Whether what we packed ourselves was read as it was meant: all transports are those that
    /// were asked for, and their addresses what these have.
    fn is_known(&self, own: &Parsed<'_>) -> bool {
        let shape = |entry: &Entry<'_>| {
            let (device, interface) = (entry.device.len(), entry.interface.len());
            match self.known(entry) {
                Known::Tcp => device >= 6 && interface == 2,
                Known::Shared(_) => device >= 8 && interface >= 8,
                Known::Cma => device >= 8 && interface >= 4,
                // Of one that is asked for by its name alone nothing else may come.
                Known::Other => self.names.is_empty(),
            }
        };
        own.flags & !1 == WORKER && !own.entries.is_empty() && own.entries.iter().all(shape)
    }

    fn known(&self, entry: &Entry<'_>) -> Known {
        let found = self.names.iter().find(|(sum, _)| *sum == entry.transport);
        found.map_or(Known::Other, |(_, known)| *known)
    }

    /// Shared memory that a transport's address names: whose, its number, and what is behind it.
    fn segment<'a>(&self, entry: &Entry<'a>) -> Option<(Maker, u64, &'a [u8])> {
        let Known::Shared(maker) = self.known(entry) else { return None };
        let (number, rest) = entry.interface.split_first_chunk()?;
        Some((maker, u64::from_le_bytes(*number), rest))
    }

    /// Whether UCX may be given this address, or why not.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, name: &[u8]) -> Result<(), &'static str> {
        const ENTRIES: &str = "an address of UCX's for other transports than this endpoint has";
        if name == self.own {
            return Ok(());
        }
        let none = "not an address of UCX's";
        let (Some(own), Some(theirs)) = (parse(&self.own, self.indexed), parse(name, self.indexed))
        else {
            return Err(none);
        };
        // An address with its number is taken for this worker's.
        if theirs.flags != own.flags || theirs.worker == own.worker {
            return Err(none);
        }
        if self.node && !self.differs_in_values(&own, &theirs) {
            return Err(ENTRIES);
        }
        if !theirs.entries.iter().any(|entry| own.entries.iter().any(|ours| alike(ours, entry))) {
            return Err(ENTRIES);
        }
        for entry in &theirs.entries {
            self.check_domain(entry.domain, &theirs)?;
            check_attributes(entry.attributes, theirs.version)?;
            let alike = |ours: &&Entry<'_>| alike(ours, entry);
            match own.entries.iter().filter(alike).find(|ours| self.is_steered_alike(ours, entry)) {
                Some(_) => self.check_place(entry, name)?,
                // UCX passes it over, for it has not that transport.
                None if self.known(entry) == Known::Other
                    && own.entries.iter().all(|ours| ours.transport != entry.transport) => {}
                None => return Err("an address that this endpoint cannot reach"),
            }
        }
        Ok(())
    }

    /// Of workers of one node: whether all is the same that is no value.
    fn differs_in_values(&self, own: &Parsed<'_>, theirs: &Parsed<'_>) -> bool {
        let same = |(ours, theirs): (&Entry<'_>, &Entry<'_>)| {
            // What it can do is said in the last bytes.
            let can =
                |entry: &Entry<'_>| entry.attributes.iter().skip(12).copied().collect::<Vec<u8>>();
            let of = |entry: &Entry<'_>| {
                let lengths = (entry.device.len(), entry.interface.len());
                (entry.domain, entry.flags, entry.transport, lengths, can(entry))
            };
            of(ours) == of(theirs)
        };
        own.version == theirs.version
            && own.release == theirs.release
            && own.entries.len() == theirs.entries.len()
            && own.entries.iter().zip(&theirs.entries).all(same)
    }

    /// The index of a memory domain becomes one of a bit in a word: see
    /// `ucp_address_adjust_unpacked_md_index`.
    fn check_domain(&self, domain: u8, theirs: &Parsed<'_>) -> Result<(), &'static str> {
        let legacy = match theirs.release {
            // As UCX takes it: the nearest to its own.
            Some(release) => {
                let (own, release) = (self.minor % RELEASES, u32::from(release));
                let mut base = self.minor / RELEASES;
                if own >= release + RELEASES / 2 {
                    base += 1;
                } else if release >= own + RELEASES / 2 {
                    base = base.saturating_sub(1);
                }
                release + base * RELEASES <= LAST_LEGACY
            }
            None => theirs.version == 0,
        };
        match domain & LEGACY == 0 || legacy || self.minor <= LAST_LEGACY {
            true => Ok(()),
            false => Err("an address with a memory domain that cannot be"),
        }
    }

    /// Whether what steers UCX through the addresses of one transport is the same in ours and in
    /// theirs.
    fn is_steered_alike(&self, ours: &Entry<'_>, theirs: &Entry<'_>) -> bool {
        let [device, interface] =
            [(ours.device, theirs.device), (ours.interface, theirs.interface)];
        let one_length = device.0.len() == device.1.len();
        match self.known(theirs) {
            // Flags and the family, and then an address, or for the loopback interface the number
            // of the machine, behind which some versions leave room.
            Known::Tcp => match (device.0.split_at_checked(2), device.1.split_at_checked(2)) {
                (Some((ours, machine)), Some((theirs, other))) => {
                    let reachable =
                        if ours[0] & 1 == 0 { one_length } else { is_one_machine(machine, other) };
                    ours == theirs && reachable
                }
                _ => false,
            },
            Known::Shared(maker) => {
                let flags =
                    |entry| self.segment(entry).map(|(_, number, _)| segment::flags(maker, number));
                is_one_machine(device.0, device.1)
                    && flags(ours) == flags(theirs)
                    && interface.0[8..] == interface.1[8..]
            }
            // The process, in the highest bit with a flag that says whether its name space follows.
            Known::Cma => {
                is_one_machine(device.0, device.1)
                    && (interface.0[3] ^ interface.1[3]) & 0x80 == 0
                    && interface.0[4..] == interface.1[4..]
            }
            // Flags come first.
            Known::Other => one_length && device.0.first() == device.1.first(),
        }
    }

    /// What is named on this machine: shared memory that is no queue, or shorter than ours, ends
    /// the process that takes it for one.
    fn check_place(&self, entry: &Entry<'_>, name: &[u8]) -> Result<(), &'static str> {
        let process = match (self.known(entry), self.segment(entry)) {
            (Known::Cma, _) => process(entry.interface).map(u64::from),
            (_, Some((maker, number, rest))) => {
                let own = self.segments.iter().find(|(of, ..)| *of == maker);
                let found = segment::find(maker, number, rest);
                match (own, found) {
                    (Some((_, ours, own)), Some(found)) if found.is_like(own, [*ours, number]) => {
                        found.process
                    }
                    // Not even ours can be seen.
                    (None, _) => None,
                    _ => return Err("an address whose shared memory is not there"),
                }
            }
            _ => None,
        };
        match process {
            Some(process)
                if process == std::process::id().into()
                    && !ours(|ours| ours.iter().any(|known| known == name)) =>
            {
                Err("an address that names this process")
            }
            _ => Ok(()),
        }
    }
}

impl Drop for AddressForm {
    fn drop(&mut self) {
        ours(|ours| ours.retain(|known| *known != self.own));
    }
}

/// The process that an address of the kind `cma` is of.
fn process(interface: &[u8]) -> Option<u32> {
    const NAME_SPACE: u32 = 1 << 31;
    interface.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) & !NAME_SPACE)
}

/// Whether both are of one transport, whose own addresses are as long.
fn alike(ours: &Entry<'_>, theirs: &Entry<'_>) -> bool {
    let of = |entry: &Entry<'_>| (entry.transport, entry.interface.len());
    of(ours) == of(theirs)
}

/// Whether these are numbers of one machine and, where the highest bit says so, of one name space
/// there.
fn is_one_machine(ours: &[u8], theirs: &[u8]) -> bool {
    let used = if ours.get(7).is_some_and(|high| high & 0x80 != 0) { 12 } else { 8 };
    ours.len() >= used && theirs.get(..used) == ours.get(..used)
}

/// UCX divides by these numbers, and looks for the best.
fn check_attributes(attributes: &[u8], version: u8) -> Result<(), &'static str> {
    if version != 0 {
        // Of 8 bits each, of which all are numbers.
        return Ok(());
    }
    let number = |at: usize| {
        let bytes = attributes.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes))
    };
    // Seconds, bytes in a second, seconds.
    let sane = (0.0..=10.0).contains(&number(0))
        && (1.0..=1e15).contains(&number(4))
        && (0.0..=10.0).contains(&number(8));
    if sane { Ok(()) } else { Err("an address with attributes that cannot be") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 1.13, 1.22 and 1.13 again pack the address of a worker on the loopback interface, and of
    /// one on another.
    const LOOPBACK: &str = "207de5e37145db901e209201020bdc48490b811fe0f9ffffef00000000cf1917b75138539e3e4bd7e037370113\
                            230082b38f";
    const LATER: &str = "208e89f3c97cb00efc000e01020bdc48490b811fe0f9ffffefcf1917b75138539e3e4bd7e0373701132300 82d731\
                         8680";
    const OTHER: &str =
        "204ebb3ce14d32ee1a208600 02c0000202cf1917b7513897 63344bd7e03737001323 0082c1bb";
    /// Shared memory with copies by the kernel, by 1.13.
    const CMA: &str = "208b410b7dc8d823b440080bdc48490b811f60a7d377cc2b3200 4c3e5077ccab3300 4f230088520e0000020000c0\
                       21880bdc48490b811f60478bbd37063600242e5077ccab3300 92210084 520e0000";

    fn bytes(text: &str) -> Vec<u8> {
        let text: String = text.split_whitespace().collect();
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    /// With the number of another worker.
    fn another(own: &[u8]) -> Vec<u8> {
        let mut other = own.to_vec();
        other[1] ^= 1;
        other
    }

    #[test]
    fn names_of_transports_are_those_of_ucx() {
        assert_eq!(crc16(b"tcp"), 0x19cf);
        assert_eq!([crc16(b"posix"), crc16(b"cma")], [0xd3a7, 0x8b47]);
    }

    #[test]
    fn versions_understand_each_other() {
        for (own, minor) in [(LOOPBACK, 13), (LATER, 22)] {
            let form = AddressForm::of(&bytes(own), "tcp", minor).unwrap();
            for other in [LOOPBACK, LATER] {
                assert_eq!(form.check(&another(&bytes(other))), Ok(()));
            }
            // Another interface.
            assert!(form.check(&bytes(OTHER)).is_err());
        }
    }

    /// Whatever is cut off, put on, or another number where it steers UCX.
    #[test]
    fn what_ucx_does_not_pack_is_refused() {
        let own = bytes(LOOPBACK);
        let form = AddressForm::of(&own, "tcp", 13).unwrap();
        let other = another(&own);
        assert!((0..other.len()).all(|len| form.check(&other[..len]).is_err()));
        for more in [&[0][..], &[0xff], &[0x86, 0x80, 0]] {
            assert!(form.check(&[&other, more].concat()).is_err());
        }
        // The number of the worker, numbers of cost, what it can do, the port; and of the domain's
        // index its lower bits.
        let free = |at: usize| (1..9).contains(&at) || at >= 31 && at != 47;
        for at in 0..other.len() {
            for bit in 0..8 {
                let mut damaged = other.clone();
                damaged[at] ^= 1 << bit;
                // Room behind the number of the machine, and the flags of the domain.
                let room = (23..29).contains(&at) || at == 9;
                let taken = form.check(&damaged).is_ok();
                assert!(!taken || free(at) || room, "bit {bit} of byte {at}");
            }
        }
        // Ours, sent by a peer with another port.
        let mut ours = own.clone();
        *ours.last_mut().unwrap() ^= 1;
        assert!(form.check(&ours).is_err() && form.check(&own).is_ok());
    }

    #[test]
    fn numbers_of_cost_are_numbers() {
        let own = bytes(LOOPBACK);
        let form = AddressForm::of(&own, "tcp", 13).unwrap();
        for at in [31, 35, 39] {
            for value in [f32::NAN, f32::INFINITY, -1.0, 1e30] {
                let mut damaged = another(&own);
                damaged[at..at + 4].copy_from_slice(&value.to_le_bytes());
                assert!(form.check(&damaged).is_err(), "{value} at {at}");
            }
        }
    }

    /// 1.19 and later take flags of earlier releases for a part of the index.
    #[test]
    fn indices_of_domains_are_below_their_number() {
        let form = AddressForm::of(&bytes(LATER), "tcp", 22).unwrap();
        for (domain, release, taken) in [
            (0, 0x86, true),
            (31, 0x86, true),
            (0x60, 0x86, false),
            (0x20, 0x82, true),
            (0x20, 0x83, false),
        ] {
            let mut other = another(&bytes(LATER));
            other[9] = domain;
            let at = other.len() - 2;
            other[at] = release;
            assert_eq!(form.check(&other).is_ok(), taken, "{domain:x} of release {release:x}");
        }
    }

    /// An address that names this process, but none of its workers.
    #[test]
    fn places_in_this_process_are_its_own() {
        let mut own = bytes(CMA);
        let process = std::process::id().to_le_bytes();
        let at = own.len() - 4;
        own[at..].copy_from_slice(&process);
        // That number of shared memory is none of this process's, so that only the process counts.
        let form = AddressForm::of(&own, "posix,cma", 13).unwrap();
        let mut other = another(&own);
        assert!(form.check(&other).is_err());
        let known = AddressForm::of(&other, "posix,cma", 13).unwrap();
        assert_eq!(form.check(&other), Ok(()));
        drop(known);
        assert!(form.check(&other).is_err());
        // Of any other process.
        other[at] ^= 1;
        assert_eq!(form.check(&other), Ok(()));
    }

    #[test]
    fn forms_that_are_not_known_are_none() {
        for (own, transports) in
            [("", "tcp"), ("00", "tcp"), (LOOPBACK, "posix"), (&LOOPBACK[2..], "tcp")]
        {
            assert!(AddressForm::of(&bytes(own), transports, 13).is_none(), "{own} {transports}");
        }
    }
}
