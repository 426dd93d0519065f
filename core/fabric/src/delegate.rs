//! For endpoints that stand in front of another one: to inject faults, to watch, to count.

/// Writes methods of [`Endpoint`](crate::Endpoint) that do what the endpoint in a field does.
///
/// One that changes `progress` leaves `poll_message` and `poll_completion` out: then all messages
/// and completions come that way.
///
/// ```
/// use petasos_fabric::{Endpoint, Event, Time, delegate};
///
/// /// Counts what comes.
/// struct Counted<E> {
///     inner: E,
///     events: usize,
/// }
///
/// impl<E: Endpoint> Endpoint for Counted<E> {
///     fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
///         let before = events.len();
///         let worked = self.inner.progress(now, budget, events);
///         self.events += events.len() - before;
///         worked
///     }
///
///     delegate! {
///         inner: address incarnation capabilities resolve peer forget inject submit cancel arm
///         fd notifier alloc register export import release
///     }
/// }
/// ```
#[macro_export]
macro_rules! delegate {
    ($to:ident: $($method:ident)*) => { $($crate::delegate!(@ $to $method);)* };
    (@ $to:ident address) => {
        fn address(&self) -> &$crate::Address {
            self.$to.address()
        }
    };
    (@ $to:ident incarnation) => {
        fn incarnation(&self) -> $crate::Incarnation {
            self.$to.incarnation()
        }
    };
    (@ $to:ident capabilities) => {
        fn capabilities(&self) -> &$crate::Capabilities {
            self.$to.capabilities()
        }
        fn capabilities_of(&self, peer: $crate::Peer) -> Option<&$crate::Capabilities> {
            self.$to.capabilities_of(peer)
        }
    };
    (@ $to:ident resolve) => {
        fn resolve(
            &mut self,
            address: &$crate::Address,
            patience: ::std::time::Duration,
        ) -> Result<$crate::Peer, $crate::ResolveError> {
            self.$to.resolve(address, patience)
        }
        fn resolve_running(
            &mut self,
            address: &$crate::Address,
            patience: ::std::time::Duration,
        ) -> Result<$crate::Peer, $crate::ResolveError> {
            self.$to.resolve_running(address, patience)
        }
    };
    (@ $to:ident peer) => {
        fn peer(&self, peer: $crate::Peer) -> Option<$crate::PeerInfo> {
            self.$to.peer(peer)
        }
        fn channels_of(&self, peer: $crate::Peer) -> Vec<$crate::ChannelUse> {
            self.$to.channels_of(peer)
        }
        $crate::delegate!(@ $to quota);
    };
    (@ $to:ident quota) => {
        fn set_quota(
            &mut self,
            peer: $crate::Peer,
            quota: $crate::PeerQuota,
        ) -> Result<(), $crate::QuotaError> {
            self.$to.set_quota(peer, quota)
        }
        fn usage(&self, peer: $crate::Peer) -> Option<$crate::PeerUsage> {
            self.$to.usage(peer)
        }
        fn set_attended(&mut self) {
            self.$to.set_attended();
        }
    };
    (@ $to:ident forget) => {
        fn forget(&mut self, peer: $crate::Peer) {
            self.$to.forget(peer);
        }
    };
    (@ $to:ident inject) => {
        fn inject(
            &mut self,
            peer: $crate::Peer,
            parts: &[&[u8]],
        ) -> Result<(), $crate::InjectError> {
            self.$to.inject(peer, parts)
        }
    };
    (@ $to:ident submit) => {
        fn submit(&mut self, operations: &mut ::std::collections::VecDeque<$crate::Operation>) {
            self.$to.submit(operations);
        }
        fn try_submit(&mut self, operation: $crate::Operation) -> Result<(), $crate::Refused> {
            self.$to.try_submit(operation)
        }
    };
    (@ $to:ident cancel) => {
        fn cancel(&mut self, token: $crate::Token) {
            self.$to.cancel(token);
        }
        $crate::delegate!(@ $to in_use);
    };
    (@ $to:ident in_use) => {
        fn in_use(&self, memory: &$crate::Slice) -> Option<$crate::InUse> {
            self.$to.in_use(memory)
        }
    };
    (@ $to:ident progress) => {
        fn progress(
            &mut self,
            now: $crate::Time,
            budget: usize,
            events: &mut Vec<$crate::Event>,
        ) -> bool {
            self.$to.progress(now, budget, events)
        }
    };
    (@ $to:ident poll_message) => {
        fn poll_message(&mut self, message: &mut $crate::Lease) -> Option<$crate::Peer> {
            self.$to.poll_message(message)
        }
    };
    (@ $to:ident poll_completion) => {
        fn poll_completion(&mut self) -> Option<$crate::Completion> {
            self.$to.poll_completion()
        }
    };
    (@ $to:ident linger) => {
        fn relax(&self) {
            self.$to.relax();
        }
    };
    (@ $to:ident arm) => {
        fn arm(&mut self, now: $crate::Time) -> $crate::Sleep {
            self.$to.arm(now)
        }
    };
    (@ $to:ident fd) => {
        fn fd(&self) -> Option<::std::os::fd::BorrowedFd<'_>> {
            self.$to.fd()
        }
    };
    (@ $to:ident notifier) => {
        fn notifier(&self) -> $crate::Notifier {
            self.$to.notifier()
        }
    };
    (@ $to:ident alloc) => {
        fn alloc(&mut self, len: usize) -> Result<$crate::Region, $crate::AllocError> {
            self.$to.alloc(len)
        }
    };
    (@ $to:ident register) => {
        fn register(
            &mut self,
            memory: &$crate::Slice,
            access: $crate::Access,
        ) -> Result<$crate::RegionId, $crate::RegisterError> {
            self.$to.register(memory, access)
        }
    };
    (@ $to:ident export) => {
        fn export(&self, region: $crate::RegionId) -> Result<$crate::Key, $crate::ExportError> {
            self.$to.export(region)
        }
        $crate::delegate!(@ $to export_part);
    };
    // With it, those under numbers.
    (@ $to:ident export_part) => {
        fn export_part(
            &mut self,
            region: $crate::RegionId,
            range: ::std::ops::Range<u64>,
            access: $crate::Access,
        ) -> Result<($crate::KeyId, $crate::Key), $crate::ExportError> {
            self.$to.export_part(region, range, access)
        }
        fn export_number(
            &mut self,
            region: $crate::RegionId,
            range: ::std::ops::Range<u64>,
            access: $crate::Access,
            number: u64,
        ) -> Result<$crate::KeyId, $crate::ExportError> {
            self.$to.export_number(region, range, access, number)
        }
    };
    (@ $to:ident import) => {
        fn import(&mut self, key: &$crate::Key) -> Result<$crate::Remote, $crate::ImportError> {
            self.$to.import(key)
        }
        fn import_from(
            &mut self,
            key: &$crate::Key,
            from: $crate::Peer,
        ) -> Result<$crate::Remote, $crate::ImportError> {
            self.$to.import_from(key, from)
        }
        $crate::delegate!(@ $to import_number);
    };
    (@ $to:ident import_number) => {
        fn import_number(
            &mut self,
            peer: $crate::Peer,
            number: u64,
            len: u64,
        ) -> Result<$crate::Remote, $crate::ImportError> {
            self.$to.import_number(peer, number, len)
        }
    };
    (@ $to:ident release) => {
        fn release(&mut self, remote: $crate::Remote) {
            self.$to.release(remote);
        }
    };
}
