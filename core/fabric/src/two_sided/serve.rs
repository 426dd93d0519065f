//! For transports over the engine: the methods of an endpoint that the engine answers.

/// Writes methods of [`Endpoint`](crate::Endpoint) that the [`Engine`](super::Engine) in a field
/// answers. `capabilities` are those in the field of that name; `import` resolves the owner of the
/// key, for as long as [`Key::IMPORT_PATIENCE`](crate::Key::IMPORT_PATIENCE).
///
/// ```
/// use petasos_fabric::{
///     Address, Capabilities, Endpoint, Event, Notifier, Peer, ResolveError, Sleep, Time,
///     answered_by_engine, two_sided::Engine,
/// };
/// use std::{os::fd::BorrowedFd, time::Duration};
///
/// /// Reaches itself alone.
/// struct Alone {
///     engine: Engine,
///     capabilities: Capabilities,
///     notifier: Notifier,
/// }
///
/// impl Endpoint for Alone {
///     fn resolve(&mut self, address: &Address, _: Duration) -> Result<Peer, ResolveError> {
///         match self.engine.find_peer(address) {
///             Some(peer) => Ok(peer),
///             None => self.engine.add_peer(address),
///         }
///     }
///     fn forget(&mut self, peer: Peer) {
///         self.engine.forget(peer);
///     }
///     fn progress(&mut self, _: Time, budget: usize, events: &mut Vec<Event>) -> bool {
///         self.engine.take_events(budget, events)
///     }
///     fn arm(&mut self, _: Time) -> Sleep {
///         match self.engine.has_events() {
///             true => Sleep::Busy,
///             false => Sleep::Until(self.engine.deadline()),
///         }
///     }
///     fn fd(&self) -> Option<BorrowedFd<'_>> {
///         None
///     }
///     fn notifier(&self) -> Notifier {
///         self.notifier.clone()
///     }
///
///     answered_by_engine! {
///         engine: address incarnation capabilities peer inject submit cancel register export
///         import release
///     }
/// }
/// ```
#[macro_export]
macro_rules! answered_by_engine {
    ($to:ident: $($method:ident)*) => { $($crate::answered_by_engine!(@ $to $method);)* };
    (@ $to:ident capabilities) => {
        fn capabilities(&self) -> &$crate::Capabilities {
            &self.capabilities
        }
    };
    (@ $to:ident peer) => {
        fn peer(&self, peer: $crate::Peer) -> Option<$crate::PeerInfo> {
            self.$to.peer_info(peer)
        }
        $crate::delegate!($to: quota);
    };
    (@ $to:ident submit) => {
        fn try_submit(&mut self, operation: $crate::Operation) -> Result<(), $crate::Refused> {
            self.$to.try_submit(operation)
        }
    };
    (@ $to:ident import) => {
        fn import(&mut self, key: &$crate::Key) -> Result<$crate::Remote, $crate::ImportError> {
            let parts = key.parse()?;
            let patience = $crate::Key::IMPORT_PATIENCE;
            let peer = $crate::Endpoint::resolve(self, &parts.owner, patience)?;
            self.$to.import(parts, peer)
        }
        $crate::delegate!($to: import_number);
    };
    // The engine has these as the endpoint has them.
    (@ $to:ident address) => { $crate::delegate!($to: address); };
    (@ $to:ident incarnation) => { $crate::delegate!($to: incarnation); };
    (@ $to:ident quota) => { $crate::delegate!($to: quota); };
    (@ $to:ident inject) => { $crate::delegate!($to: inject); };
    (@ $to:ident poll_completion) => { $crate::delegate!($to: poll_completion); };
    (@ $to:ident cancel) => { $crate::delegate!($to: cancel); };
    (@ $to:ident register) => { $crate::delegate!($to: register); };
    (@ $to:ident export) => { $crate::delegate!($to: export); };
    (@ $to:ident export_part) => { $crate::delegate!($to: export_part); };
    (@ $to:ident import_number) => { $crate::delegate!($to: import_number); };
    (@ $to:ident release) => { $crate::delegate!($to: release); };
}
