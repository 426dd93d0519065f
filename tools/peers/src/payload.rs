//! What is sent, and a look at what comes back.

use crate::Error;

/// Bytes of which no two neighbours are the same; a prime period, so that no place looks like
/// another.
pub(crate) fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// How closely an answer is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Each byte.
    Whole,
    /// How many there are, and the first and the last: the look must not cost what the call costs.
    Ends,
}

impl Check {
    pub(crate) fn check(self, peer: &'static str, sent: &[u8], back: &[u8]) -> Result<(), Error> {
        let same = match self {
            Check::Whole => sent == back,
            Check::Ends => {
                sent.len() == back.len()
                    && sent.first() == back.first()
                    && sent.last() == back.last()
            }
        };
        let mismatch = Error::Mismatch { peer, sent: sent.len(), received: back.len() };
        if same { Ok(()) } else { Err(mismatch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answers_are_found() {
        let sent = payload(1000);
        let inside = [&sent[..500], &[sent[500] ^ 1], &sent[501..]].concat();
        let at_end = [&sent[..999], &[sent[999] ^ 1]].concat();
        for (back, whole, ends) in [
            (&sent, true, true),
            (&inside, false, true),
            (&at_end, false, false),
            (&payload(999), false, false),
            (&vec![], false, false),
        ] {
            assert_eq!(Check::Whole.check("test", &sent, back).is_ok(), whole);
            assert_eq!(Check::Ends.check("test", &sent, back).is_ok(), ends);
        }
        assert!(Check::Ends.check("test", &[], &[]).is_ok());
    }
}
