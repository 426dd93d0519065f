//! Hosts and ports, as programs name them: by names, numbers, or URLs.

use crate::state::{error::Errno, name::Named};
use petasos_ofi_sys::FI_NUMERICHOST;
use std::{
    ffi::{CStr, CString, c_char},
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ptr,
};

/// What looks up names is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// Internet addresses of version 6 alone; else those of version 4 go before.
    pub(super) six: bool,
    /// Numbers alone: nothing is looked up.
    pub(super) numeric: bool,
    /// For an endpoint of this process: without a host it is any of this machine's addresses,
    /// without a port any that is free.
    pub(super) own: bool,
}

impl Wanted {
    pub(super) fn flags(self, flags: u64) -> Wanted {
        Wanted { numeric: flags & FI_NUMERICHOST != 0, ..self }
    }
}

/// What a text stands for: an address as a URL, whose host may be a name.
pub(super) fn named(text: &str) -> Option<Named> {
    if let Some(named) = Named::parse(text) {
        return Some(named);
    }
    let place = text.strip_prefix("auto://").filter(|place| !place.contains('/'))?;
    let (host, port) = place.rsplit_once(':')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.is_empty() || port.is_empty() || !host.bytes().all(plain) {
        return None;
    }
    let (host, port) = (CString::new(host).ok()?, CString::new(port).ok()?);
    look_up(Some(&host), Some(&port), Wanted::default()).ok().map(Named::Place)
}

/// Where a host and a port are.
///
/// # Errors
/// `ENODATA`: there is no such place.
pub(super) fn find(
    host: Option<&CStr>,
    port: Option<&CStr>,
    wanted: Wanted,
) -> Result<Named, Errno> {
    if let Some(url) = host.and_then(|host| host.to_str().ok()).filter(|it| it.contains("://")) {
        return named(url).ok_or(libc::ENODATA);
    }
    look_up(host, port, wanted).map(Named::Place)
}

fn look_up(host: Option<&CStr>, port: Option<&CStr>, wanted: Wanted) -> Result<SocketAddr, Errno> {
    if host.is_none() && port.is_none() {
        return Err(libc::ENODATA);
    }
    // SAFETY: zeros are what the function takes for hints that say nothing.
    let mut hints: libc::addrinfo = unsafe { mem::zeroed() };
    hints.ai_family = if wanted.six { libc::AF_INET6 } else { libc::AF_UNSPEC };
    hints.ai_socktype = libc::SOCK_STREAM;
    if wanted.numeric {
        hints.ai_flags |= libc::AI_NUMERICHOST;
    }
    if wanted.own {
        hints.ai_flags |= libc::AI_PASSIVE;
    }
    let text = |text: Option<&CStr>| text.map_or(ptr::null::<c_char>(), CStr::as_ptr);
    let mut list = ptr::null_mut();
    // SAFETY: texts with zeros behind them or null, hints, and a place for the list.
    if unsafe { libc::getaddrinfo(text(host), text(port), &raw const hints, &raw mut list) } != 0 {
        return Err(libc::ENODATA);
    }
    let (mut best, mut next) = (None, list);
    // SAFETY: the list is the function's own until it is freed; each entry is there, or null.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an address of the entry's family (the function's promise).
        let found = unsafe { address(entry) };
        let better = |best: &SocketAddr| !wanted.six && best.is_ipv6();
        if best.as_ref().is_none_or(|best| better(best) && found.is_some_and(|it| it.is_ipv4())) {
            best = found.or(best);
        }
        next = entry.ai_next;
    }
    // SAFETY: the function gave it, and nothing of it is used any more.
    unsafe { libc::freeaddrinfo(list) };
    best.ok_or(libc::ENODATA)
}

/// The Internet address of an entry, if it is one.
///
/// # Safety
/// At `ai_addr` is an address of the family that the entry says, of `ai_addrlen` bytes.
unsafe fn address(entry: &libc::addrinfo) -> Option<SocketAddr> {
    let len = entry.ai_addrlen as usize;
    match entry.ai_family {
        libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: of this type, by its family and length (the caller's promise).
            let at = unsafe { entry.ai_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(at.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(at.sin_port)))
        }
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            let at = unsafe { entry.ai_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(at.sin6_addr.s6_addr);
            Some(SocketAddr::new(ip.into(), u16::from_be(at.sin6_port)))
        }
        _ => None,
    }
}

/// The `nth` host after this one: its number, or the one at the end of its name, is that much more,
/// with as many digits.
pub(super) fn after(host: &str, nth: usize) -> Option<String> {
    if nth == 0 {
        return Some(host.to_owned());
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            let more = u32::from(ip).checked_add(u32::try_from(nth).ok()?)?;
            return Some(Ipv4Addr::from(more).to_string());
        }
        Ok(IpAddr::V6(ip)) => {
            return Some(Ipv6Addr::from(u128::from(ip).checked_add(nth as u128)?).to_string());
        }
        Err(_) => {}
    }
    let stem = host.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let digits = &host[stem.len()..];
    let number: u64 = digits.parse().ok()?;
    Some(format!("{stem}{:0width$}", number.checked_add(nth as u64)?, width = digits.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        let find = |host: Option<&CStr>, port: Option<&CStr>, own| {
            let wanted = Wanted { numeric: true, own, ..Wanted::default() };
            find(host, port, wanted).map(|named| named.to_text())
        };
        let (host, port) = (Some(c"127.0.0.1"), Some(c"4040"));
        assert_eq!(find(host, port, false).as_deref(), Ok("auto://127.0.0.1:4040"));
        assert_eq!(find(Some(c"::1"), port, false).as_deref(), Ok("auto://[::1]:4040"));
        assert_eq!(find(None, port, true).as_deref(), Ok("auto://0.0.0.0:4040"));
        assert_eq!(find(host, None, true).as_deref(), Ok("auto://127.0.0.1:0"));
        assert_eq!(find(None, None, true), Err(libc::ENODATA));
        assert_eq!(find(Some(c"nowhere"), port, false), Err(libc::ENODATA));
        let url = c"auto://0123456789abcdef/shm://x,tcp://10.0.0.7:4040#00000000";
        assert_eq!(find(Some(url), None, false).unwrap(), url.to_str().unwrap());
        assert_eq!(named("auto://localhost:40"), Named::parse("auto://127.0.0.1:40"));
        assert_eq!(named("auto://localhost:none"), None);
    }

    #[test]
    fn hosts_in_a_row() {
        assert_eq!(after("node", 0).as_deref(), Some("node"));
        assert_eq!(after("node", 1), None);
        assert_eq!(after("node009", 3).as_deref(), Some("node012"));
        assert_eq!(after("a7", 993).as_deref(), Some("a1000"));
        assert_eq!(after("10.0.0.255", 2).as_deref(), Some("10.0.1.1"));
        assert_eq!(after("255.255.255.255", 1), None);
        assert_eq!(after("fe80::ffff", 1).as_deref(), Some("fe80::1:0"));
    }
}
