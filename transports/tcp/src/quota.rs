//! The connections that others make here: each is a descriptor of this process, which has a limited
//! number.
//!
//! An eighth of them is never given to connections. Of the rest a host may have as many as are left
//! (a dynamic threshold, as switches share their buffers: A. K. Choudhury and E. L. Hahne, IEEE/ACM
//! Transactions on Networking 6(2), 1998): one alone has half, two have a third each, and something
//! is always left for one that comes late. The unit is a host, because the secret does not tell its
//! clients apart, and a client can claim any address. All addresses of the loopback interface are
//! one host, and so are those of a network of IPv6.

use petasos_fabric::acceptor::descriptor_limit;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The connections of all hosts.
#[derive(Clone, Debug)]
pub(crate) struct HostQuotas(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<IpAddr, usize>,
}

/// One connection of a host; returned when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    all: HostQuotas,
    host: IpAddr,
}

/// Why a host gets no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverQuota {
    pub(crate) has: usize,
    pub(crate) most: usize,
}

impl HostQuotas {
    pub(crate) fn new() -> HostQuotas {
        HostQuotas(Arc::default())
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection for a host; `wanted` limits those of all hosts, unless the descriptors
    /// do.
    pub(crate) fn take(&self, from: IpAddr, wanted: Option<usize>) -> Result<Permit, OverQuota> {
        let limit = usize::try_from(descriptor_limit()).unwrap_or(usize::MAX);
        let most = wanted.unwrap_or(usize::MAX).min(limit - limit / 8);
        let host = host(from);
        let mut taken = self.lock();
        let has = taken.by.get(&host).copied().unwrap_or(0);
        if has >= most.saturating_sub(taken.all) {
            return Err(OverQuota { has, most });
        }
        taken.all += 1;
        taken.by.insert(host, has + 1);
        drop(taken);
        Ok(Permit { all: self.clone(), host })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.all.lock();
        taken.all -= 1;
        match taken.by.get_mut(&self.host) {
            Some(has) if *has > 1 => *has -= 1,
            _ => drop(taken.by.remove(&self.host)),
        }
    }
}

/// What counts as one host.
fn host(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        ip if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_leaves_others_theirs() {
        let quotas = HostQuotas::new();
        let all_of = |last: u8| -> Vec<Permit> {
            let ip = IpAddr::from([10, 0, 0, last]);
            std::iter::from_fn(|| quotas.take(ip, Some(12)).ok()).collect()
        };
        let first = all_of(1);
        assert_eq!(first.len(), 6);
        let crowded = quotas.take([10, 0, 0, 1].into(), Some(12)).unwrap_err();
        assert_eq!(crowded, OverQuota { has: 6, most: 12 });
        let second = all_of(2);
        assert_eq!((second.len(), all_of(3).len()), (3, 2));
        drop(first);
        assert_eq!(all_of(2).len(), 3, "with the three that it has: half, as of one alone");
        drop(second);
        let taken = quotas.lock();
        assert_eq!((taken.all, taken.by.len()), (0, 0));
    }

    #[test]
    fn what_is_one_host() {
        for own in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.2"] {
            assert_eq!(host(own.parse().unwrap()), IpAddr::from([127, 0, 0, 1]));
        }
        let net = |text: &str| host(text.parse().unwrap());
        assert_eq!(net("2001:db8:1:2::5"), net("2001:db8:1:2:9::"));
        assert_ne!(net("2001:db8:1:2::5"), net("2001:db8:1:3::5"));
        assert_ne!(net("10.0.0.1"), net("10.0.0.2"));
    }

    #[test]
    fn descriptors_are_the_limit_where_nothing_is_said() {
        let few = HostQuotas::new().take([10, 0, 0, 1].into(), Some(0));
        assert_eq!(few.unwrap_err(), OverQuota { has: 0, most: 0 });
        let all = HostQuotas::new();
        let limit = usize::try_from(descriptor_limit()).unwrap_or(usize::MAX);
        all.lock().all = limit - limit / 8 - 1;
        let _last = all.take([10, 0, 0, 1].into(), None).unwrap();
        assert!(all.take([10, 0, 0, 2].into(), None).is_err());
        assert!(all.take([10, 0, 0, 2].into(), Some(usize::MAX)).is_err());
    }
}
