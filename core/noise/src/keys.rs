//! Ephemeral keys, and the cryptography of the pattern.
//!
//! All of it is that of the crate `ring`: by `snow`'s own resolver, which lacks X25519 alone.

use ring::{
    agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral},
    rand::SystemRandom,
};
use snow::{
    Error,
    params::{CipherChoice, DHChoice, HashChoice},
    resolvers::{CryptoResolver, RingResolver},
    types::{Cipher, Dh, Hash, Random},
};
use std::{
    cell::Cell,
    process,
    sync::{Mutex, PoisonError},
};

const LEN: usize = 32;

/// A pair of keys. `ring` consumes the private one, which so agrees on one shared key.
struct Pair {
    private: EphemeralPrivateKey,
    public: [u8; LEN],
}

impl Pair {
    /// From the system's random source.
    fn new() -> Result<Pair, Error> {
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new());
        let private = private.map_err(|_| Error::Rng)?;
        let public = private.compute_public_key().map_err(|_| Error::Rng)?;
        let public = public.as_ref().try_into().map_err(|_| Error::Dh)?;
        Ok(Pair { private, public })
    }
}

thread_local! {
    /// A pair that was made ahead, and the process that made it.
    static SPARE: Cell<Option<(u32, Pair)>> = const { Cell::new(None) };
}

/// Makes the ephemeral keys of this thread's next handshake, unless there are some: to be called
/// while the thread waits for the other side anyway, as it takes as long as a round trip.
///
/// The keys depend on nothing that either side sends, only on the system's random source, so that
/// it does not matter when they are made. They are used once: the first handshake that needs a pair
/// takes it, and a private key is consumed where it is used. A process that was forked does not use
/// its parent's. What is kept longer is one key with which no message has been encrypted yet.
pub fn prepare() {
    let process = process::id();
    let spare = SPARE.take().filter(|(maker, _)| *maker == process);
    SPARE.set(spare.or_else(|| Some((process, Pair::new().ok()?))));
}

/// The pair that was made ahead, or a new one.
fn next() -> Result<Pair, Error> {
    match SPARE.take().filter(|(maker, _)| *maker == process::id()) {
        Some((_, pair)) => Ok(pair),
        None => Pair::new(),
    }
}

/// X25519 with ephemeral keys alone, each for one shared key.
#[derive(Default)]
struct Once {
    /// `snow` may share itself between threads by reference, which take the key under this lock.
    private: Mutex<Option<EphemeralPrivateKey>>,
    public: [u8; LEN],
}

impl Dh for Once {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        LEN
    }

    fn priv_len(&self) -> usize {
        LEN
    }

    /// The pattern has no key that is given: without [`Once::generate`] there is none to agree
    /// with.
    fn set(&mut self, _: &[u8]) {}

    fn generate(&mut self, _: &mut dyn Random) -> Result<(), Error> {
        let pair = next()?;
        (self.private, self.public) = (Mutex::new(Some(pair.private)), pair.public);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &[]
    }

    fn dh(&self, theirs: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let own = self.private.lock().unwrap_or_else(PoisonError::into_inner).take();
        let own = own.ok_or(Error::Dh)?;
        let theirs = UnparsedPublicKey::new(&X25519, theirs.get(..LEN).ok_or(Error::Dh)?);
        let out = out.get_mut(..LEN).ok_or(Error::Dh)?;
        // A point of low order, which only a peer that knows the secret can send, gives zeroes
        // (section 12.1 of the framework), and that peer gains nothing that it could not have by
        // revealing the secret. `ring` reports an error.
        out.fill(0);
        let _ = agree_ephemeral(own, &theirs, |shared| out.copy_from_slice(shared));
        Ok(())
    }
}

/// What `snow` computes with.
pub(crate) struct Resolver;

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        RingResolver.resolve_rng()
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(Once::default()) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        RingResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoRandom;

    impl Random for NoRandom {
        fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Error> {
            Err(Error::Rng)
        }
    }

    fn generated() -> Once {
        let mut once = Once::default();
        once.generate(&mut NoRandom).unwrap();
        once
    }

    #[test]
    fn both_agree_once() {
        let (a, b) = (generated(), generated());
        let [mut ours, mut theirs] = [[0; 56]; 2];
        a.dh(b.pubkey(), &mut ours).unwrap();
        b.dh(a.pubkey(), &mut theirs).unwrap();
        assert!(ours == theirs && ours[..LEN] != [0; LEN]);
        assert!(a.dh(b.pubkey(), &mut ours).is_err(), "a key is used once");
        assert!(Once::default().dh(b.pubkey(), &mut ours).is_err(), "there is none");
    }

    #[test]
    fn what_was_made_ahead_is_taken_by_one_handshake() {
        prepare();
        let ahead = SPARE.take().unwrap();
        let public = ahead.1.public;
        SPARE.set(Some(ahead));
        prepare();
        assert_eq!(generated().public, public, "it was made once");
        assert_ne!(generated().public, public);
        assert!(SPARE.take().is_none());
        // As in a child that was forked.
        SPARE.set(Some((process::id() + 1, Pair::new().unwrap())));
        let parents = SPARE.take().unwrap();
        let public = parents.1.public;
        SPARE.set(Some(parents));
        assert_ne!(generated().public, public);
    }

    /// The function of RFC 7748, section 6.1, for a key that `ring` made: what `snow`'s own
    /// resolver computes.
    #[test]
    fn a_point_of_low_order_gives_zeroes() {
        let mut one = [0; LEN];
        one[0] = 1;
        for point in [[0; LEN], one] {
            let mut out = [7; LEN];
            generated().dh(&point, &mut out).unwrap();
            assert_eq!(out, [0; LEN]);
        }
    }
}
