//! Accesses to a peer that is lost while the provider works on them, and does not say that it is
//! done: they end all the same, and their memory is not given away.

mod common;
#[path = "common/pair.rs"]
mod pair;

use common::{config, network};
use pair::Pair;
use petasos_fabric::{
    Access, Done, Endpoint, Event, Level, OpErrorKind, Operation, Region, RemoteSpan, Token,
};
use smallvec::smallvec;
use std::time::{Duration, Instant};

const LEN: usize = 256 << 10;

/// How an operation of `a` ended, while `b` does not look, so that the provider is not done with
/// it.
fn end(pair: &mut Pair, token: Token) -> Result<Done, OpErrorKind> {
    let is = |e: &Event| matches!(e, Event::Done { token: done, .. } if *done == token);
    pair.drive(false, "it is done", |pair| pair.events[0].iter().any(is));
    pair.end(false, token)
}

/// Begins an access of `a`, which loses `b` while it is under way. Gives its local memory.
fn lost_under(get: bool, mourning: Duration) -> Option<(Pair, Token, Region)> {
    let mut config = config(network());
    config.remote_access_from = 1;
    config.mourning = mourning;
    let mut pair = Pair::open(network(), &config)?;
    let (_, remote) = pair.expose(&Region::zeroed(LEN).whole(), Access::ALL);
    pair.put(remote, vec![1; LEN]).unwrap();
    let memory = Region::zeroed(LEN);
    let begun = pair.a.device().counters().accesses;
    let local = smallvec![memory.whole()];
    let spans = smallvec![RemoteSpan { offset: 0, len: LEN as u64 }];
    let (level, event) = (Level::Visible, None);
    let token = pair.begin(false, |token| match get {
        true => Operation::Get { token, remote, local, spans },
        false => Operation::Put { token, remote, local, spans, level, event },
    });
    pair.drive(false, "it is under way", |pair| pair.a.device().counters().accesses > begun);
    pair.a.forget(remote.peer);
    Some((pair, token, memory))
}

#[test]
fn a_put_ends_at_once() {
    let hour = Duration::from_secs(3600);
    let Some((mut pair, token, memory)) = lost_under(false, hour) else { return };
    let ended = end(&mut pair, token);
    assert!(matches!(ended, Err(OpErrorKind::PeerLost(_))), "{ended:?}");
    assert!(memory.into_exclusive().is_err(), "the provider may read it");
}

#[test]
fn a_get_ends_after_the_mourning() {
    let mourning = Duration::from_millis(300);
    let begin = Instant::now();
    let Some((mut pair, token, memory)) = lost_under(true, mourning) else { return };
    let ended = end(&mut pair, token);
    assert!(matches!(ended, Err(OpErrorKind::PeerLost(_))), "{ended:?}");
    assert!(begin.elapsed() >= mourning, "the provider may write to it");
    assert!(memory.into_exclusive().is_err(), "the provider may write to it still");
}

/// Once the provider reports the end, it is not waited for longer.
#[test]
fn a_get_ends_when_the_provider_is_done() {
    let hour = Duration::from_secs(3600);
    let Some((mut pair, token, memory)) = lost_under(true, hour) else { return };
    let ended = pair.end(false, token);
    assert!(matches!(ended, Err(OpErrorKind::PeerLost(_))), "{ended:?}");
    assert!(memory.into_exclusive().is_ok(), "the memory is still held");
}
