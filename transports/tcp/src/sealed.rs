//! Packets that travel encrypted: a stream of records, which need not begin where packets do.

use crate::outbox::Outbox;
use petasos_noise::{Channel, NotAuthentic, RECORD, RECORD_OVERHEAD};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use std::{io, os::fd::BorrowedFd};

/// Records encrypted at a time, and sent with one system call.
const BATCH: usize = 8;
/// Bytes received at a time, at most: some records.
const INPUT: usize = 4 * (RECORD + RECORD_OVERHEAD);

/// Both directions of a connection that is encrypted.
#[derive(Debug)]
pub(crate) struct Sealed {
    channel: Channel,
    /// What has come and is not decrypted: in `come[start..end]`.
    come: Vec<u8>,
    start: usize,
    end: usize,
    /// What is encrypted, and how much of it is sent.
    going: Vec<u8>,
    sent: usize,
    /// The text of the record that is being made.
    text: Vec<u8>,
}

impl Sealed {
    pub(crate) fn new(channel: Channel) -> Sealed {
        let (come, going, text) = (vec![0; INPUT], Vec::new(), Vec::new());
        Sealed { channel, come, start: 0, end: 0, going, sent: 0, text }
    }

    /// Whether something has come that is not decrypted.
    pub(crate) fn has_come(&self) -> bool {
        self.start < self.end
    }

    /// Whether a whole record has come, of which the poller knows nothing; also one that is not
    /// valid.
    pub(crate) fn has_whole(&self) -> bool {
        !matches!(Channel::whole(&self.come[self.start..self.end]), Ok(None))
    }

    /// Whether something is encrypted that is not sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.going.len()
    }

    /// Decrypts the next record into `out`, which has room for any; receives before, if none is
    /// there. Gives the length of its text, or 0 at the end of the stream.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        out: &mut [u8],
    ) -> Result<io::Result<usize>, NotAuthentic> {
        loop {
            while let Some(len) = Channel::whole(&self.come[self.start..self.end])? {
                let record = &self.come[self.start..self.start + len];
                let text = self.channel.open(record, out)?;
                self.start += len;
                // An empty record has no text, and is not the end.
                if text > 0 {
                    return Ok(Ok(text));
                }
            }
            self.come.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match recv(socket, &mut self.come[self.end..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Ok(Ok(0)),
                Ok((got, _)) => self.end += got,
                Err(Errno::INTR) => {}
                Err(error) => return Ok(Err(error.into())),
            }
        }
    }

    /// Encrypts what waits, and sends what the socket takes. Gives the number of bytes, and of the
    /// engine's packets whose memory may change. No bytes: the socket is full.
    pub(crate) fn send(
        &mut self,
        outbox: &mut Outbox,
        socket: BorrowedFd<'_>,
    ) -> io::Result<(usize, usize)> {
        let mut packets = 0;
        if !self.has_unsent() {
            self.going.clear();
            self.sent = 0;
            for _ in 0..BATCH {
                self.text.clear();
                let (len, sent) = outbox.take(RECORD, &mut self.text);
                packets += sent;
                if len == 0 {
                    break;
                }
                self.channel.seal(&self.text, &mut self.going);
            }
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match send(socket, &self.going[self.sent..], flags) {
            Ok(sent) => {
                self.sent += sent;
                Ok((sent, packets))
            }
            Err(Errno::AGAIN) => Ok((0, packets)),
            Err(error) => Err(error.into()),
        }
    }
}
