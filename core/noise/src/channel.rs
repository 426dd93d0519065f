//! Records: the encrypted data after the handshake.
//!
//! A record is its length (two bytes, little-endian, the tag counted) and a transport message of
//! Noise. The number of a record in its direction is part of it (the nonce), so that one that is
//! changed, left out, repeated or reordered ends the connection. There are 2^64 numbers; before
//! they run out the connection ends, too.

use crate::NotAuthentic;
use snow::TransportState;

/// The longest text of a record, in bytes.
pub const RECORD: usize = 32 << 10;
const TAG: usize = 16;
const LENGTH: usize = 2;
/// How much longer a record is than its text.
pub const OVERHEAD: usize = LENGTH + TAG;

/// Both directions of an encrypted connection.
#[derive(Debug)]
pub struct Channel(Box<TransportState>);

impl Channel {
    pub(crate) fn new(state: TransportState) -> Channel {
        Channel(Box::new(state))
    }

    /// Appends a text as a record.
    ///
    /// # Panics
    /// If it is longer than [`RECORD`], or 2^64 records were sealed.
    pub fn seal(&mut self, text: &[u8], out: &mut Vec<u8>) {
        assert!(text.len() <= RECORD, "a text of {} bytes", text.len());
        let sealed = text.len() + TAG;
        out.extend_from_slice(&(sealed as u16).to_le_bytes());
        let start = out.len();
        out.resize(start + sealed, 0);
        let len =
            self.0.write_message(text, &mut out[start..]).expect("numbers of records are left");
        assert_eq!(len, sealed);
    }

    /// The length of the record with which these bytes begin, if all of it is there.
    pub fn whole(bytes: &[u8]) -> Result<Option<usize>, NotAuthentic> {
        let Some(len) = bytes.first_chunk().map(|len| usize::from(u16::from_le_bytes(*len))) else {
            return Ok(None);
        };
        if !(TAG..=RECORD + TAG).contains(&len) {
            return Err(NotAuthentic);
        }
        Ok((bytes.len() >= LENGTH + len).then_some(LENGTH + len))
    }

    /// The text of a whole record, which is put at the beginning of `out`; gives its length.
    ///
    /// # Panics
    /// If `out` has no room for it: [`RECORD`] bytes always do.
    pub fn open(&mut self, record: &[u8], out: &mut [u8]) -> Result<usize, NotAuthentic> {
        let sealed = record.get(LENGTH..).ok_or(NotAuthentic)?;
        assert!(out.len() + TAG >= sealed.len(), "room for the text");
        self.0.read_message(sealed, out).map_err(|_| NotAuthentic)
    }

    /// All texts of what are whole records.
    #[cfg(test)]
    pub(crate) fn open_all(&mut self, mut records: &[u8]) -> Vec<u8> {
        let (mut all, mut text) = (Vec::new(), [0; RECORD]);
        while let Some(len) = Channel::whole(records).unwrap() {
            let (record, rest) = records.split_at(len);
            let len = self.open(record, &mut text).unwrap();
            all.extend_from_slice(&text[..len]);
            records = rest;
        }
        assert!(records.is_empty());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handshake, OVERHEAD, Psk};

    fn channels() -> [Channel; 2] {
        let psk = Psk::new("test", b"secret");
        let (mut a, mut b) = (Handshake::initiator(&psk, b""), Handshake::responder(&psk, b""));
        let mut message = [0; OVERHEAD];
        a.write(&[], &mut message);
        b.read(&message, &mut []).unwrap();
        b.write(&[], &mut message);
        a.read(&message, &mut []).unwrap();
        [a.into_channel(), b.into_channel()]
    }

    #[test]
    fn texts_of_all_lengths_arrive_in_both_directions() {
        let [mut a, mut b] = channels();
        for len in [0, 1, 100, RECORD] {
            let text = vec![len as u8; len];
            let mut records = Vec::new();
            a.seal(&text, &mut records);
            a.seal(b"more", &mut records);
            assert_eq!(b.open_all(&records), [&text[..], b"more"].concat());
            records.clear();
            b.seal(&text, &mut records);
            assert_eq!(a.open_all(&records), text);
        }
    }

    #[test]
    fn changed_repeated_and_exchanged_records_are_found_out() {
        let mut text = [0; RECORD];
        let sealed = || {
            let [mut a, b] = channels();
            let mut records = [Vec::new(), Vec::new()];
            records.iter_mut().for_each(|record| a.seal(b"a text", record));
            (records, a, b)
        };
        let (records, _, mut b) = sealed();
        assert_eq!(b.open(&records[1], &mut text), Err(NotAuthentic), "out of turn");
        let (records, mut a, mut b) = sealed();
        assert_eq!(a.open(&records[0], &mut text), Err(NotAuthentic), "sent back");
        assert_eq!(b.open(&records[0], &mut text), Ok(6));
        assert_eq!(b.open(&records[0], &mut text), Err(NotAuthentic), "twice");
        for at in LENGTH..LENGTH + 6 + TAG {
            let (mut records, _, mut b) = sealed();
            records[0][at] ^= 1;
            assert_eq!(b.open(&records[0], &mut text), Err(NotAuthentic), "changed at {at}");
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        assert_eq!(Channel::whole(&[]), Ok(None));
        assert_eq!(Channel::whole(&[16]), Ok(None));
        assert_eq!(Channel::whole(&[15, 0]), Err(NotAuthentic));
        assert_eq!(Channel::whole(&[0x11, 0x80]), Err(NotAuthentic));
        assert_eq!(Channel::whole(&[0x10, 0x80]), Ok(None));
        assert_eq!(Channel::whole(&[0; 40]), Err(NotAuthentic));
    }
}
