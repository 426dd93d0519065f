//! Values over a stream: each in a frame, preceded by its length (32 bits, little-endian).

use crate::Error;
use petasos_wire::{Encoding, Wire, encode_into, from_bytes};
use rustix::{
    buffer::spare_capacity,
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg},
    process::Pid,
};
use std::{
    collections::VecDeque,
    io::{self, ErrorKind, IoSlice, IoSliceMut, Write},
    mem::MaybeUninit,
    net::TcpStream,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// On this node.
    Unix(UnixStream),
    /// To another node, or of a client that speaks PMIx.
    Tcp(TcpStream),
}

impl Stream {
    /// Another handle of the same connection.
    ///
    /// # Errors
    /// If this process may open no more files.
    pub fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }

    fn set_read_timeout(&self, most: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(Some(most)),
            Stream::Tcp(stream) => stream.set_read_timeout(Some(most)),
        }
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write_vectored(parts),
            Stream::Tcp(stream) => stream.write_vectored(parts),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

/// Receives what one process has sent, and says which: the kernel does not join what several have
/// sent.
fn recv_noted(
    stream: &Stream,
    into: &mut Vec<u8>,
    flags: RecvFlags,
) -> Result<(usize, Option<Pid>), Errno> {
    let before = into.len();
    into.resize(before + BLOCK, 0);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut said = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut into[before..])];
    let received = recvmsg(stream, &mut parts, &mut said, flags);
    into.truncate(before + received.as_ref().map_or(0, |received| received.bytes));
    let sender = said.drain().find_map(|one| match one {
        RecvAncillaryMessage::ScmCredentials(of) => Some(of.pid),
        _ => None,
    });
    received.map(|received| (received.bytes, sender))
}

/// Bytes read at a time, at least.
const BLOCK: usize = 16 << 10;

/// The largest receive buffer that is kept when all of it was taken.
const KEPT: usize = 1 << 20;

/// A stream of frames, in both directions, on a blocking or a non-blocking connection.
#[derive(Debug)]
pub struct Frames {
    stream: Stream,
    /// The longest frame that is taken, on both sides.
    limit: usize,
    come: Vec<u8>,
    /// The number of bytes of that which were taken already.
    taken: usize,
    going: VecDeque<Vec<u8>>,
    /// The number of bytes of the first frame that were sent already.
    gone: usize,
    backlog: usize,
    senders: Senders,
}

/// The process at the other end.
#[derive(Clone, Copy, Debug)]
enum Senders {
    Unknown,
    Is(Pid),
    /// The other end may be inherited. The kernel names the sender with each message: the last one.
    Noted(Option<Pid>),
}

impl Frames {
    /// Frames on this stream, each of at most `limit` bytes.
    pub fn new(stream: Stream, limit: usize) -> Frames {
        let (come, going) = (Vec::new(), VecDeque::new());
        let senders = Senders::Unknown;
        Frames { stream, limit, come, taken: 0, going, gone: 0, backlog: 0, senders }
    }

    /// This process is at the other end.
    pub fn is_from(&mut self, process: Pid) {
        self.senders = Senders::Is(process);
    }

    /// Any process that inherited the other end of this Unix socket may send. The socket has been
    /// told to name senders.
    pub fn note_senders(&mut self) {
        self.senders = Senders::Noted(None);
    }

    /// The process that has sent what came last, if that is known.
    pub fn sender(&self) -> Option<Pid> {
        match self.senders {
            Senders::Unknown => None,
            Senders::Is(process) => Some(process),
            Senders::Noted(process) => process,
        }
    }

    /// The stream, if it is of TCP.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match &self.stream {
            Stream::Tcp(stream) => Some(stream),
            Stream::Unix(_) => None,
        }
    }

    /// Queues a value. [`Frames::flush`] sends it.
    ///
    /// # Errors
    /// If it is longer than the other side accepts. Then nothing of it is sent.
    pub fn push<T: Wire>(&mut self, value: &T) -> Result<(), Error> {
        let mut frame = vec![0; 4];
        encode_into(Encoding::Native, value, &mut frame);
        let len = frame.len() - 4;
        let short = u32::try_from(len).ok().filter(|_| len <= self.limit);
        let Some(short) = short else {
            let (asked, limit) = (len as u64, self.limit as u64);
            return Err(Error::Limit { what: "bytes of a message".to_owned(), asked, limit });
        };
        frame[..4].copy_from_slice(&short.to_le_bytes());
        self.backlog += frame.len();
        self.going.push_back(frame);
        Ok(())
    }

    /// Sends what it can. Says whether everything was sent.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn flush(&mut self) -> io::Result<bool> {
        while let Some(first) = self.going.front() {
            let parts: Vec<IoSlice<'_>> = std::iter::once(&first[self.gone..])
                .chain(self.going.iter().skip(1).take(15).map(Vec::as_slice))
                .map(IoSlice::new)
                .collect();
            match self.stream.write(&parts) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn sent(&mut self, mut bytes: usize) {
        self.backlog -= bytes;
        while let Some(first) = self.going.front() {
            let rest = first.len() - self.gone;
            if bytes < rest {
                self.gone += bytes;
                return;
            }
            bytes -= rest;
            self.gone = 0;
            self.going.pop_front();
        }
    }

    /// Bytes that wait to be sent.
    pub fn backlog(&self) -> usize {
        self.backlog
    }

    /// Reads once, without waiting; false if nothing is there.
    ///
    /// # Errors
    /// If the connection is broken or has ended.
    pub fn fill(&mut self) -> io::Result<bool> {
        self.read(RecvFlags::DONTWAIT)
    }

    /// Sets how long [`Frames::fill_slowly`] waits. This holds for other handles of the stream as
    /// well.
    ///
    /// # Errors
    /// If that time is 0.
    pub fn set_patience(&self, most: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(most)
    }

    /// Reads once, and sleeps until something comes or the set time is over; false if nothing came.
    ///
    /// # Errors
    /// If the connection is broken or has ended.
    pub fn fill_slowly(&mut self) -> io::Result<bool> {
        self.read(RecvFlags::empty())
    }

    fn read(&mut self, flags: RecvFlags) -> io::Result<bool> {
        match self.taken == self.come.len() {
            // A large buffer is not kept for short frames.
            true if self.come.capacity() > KEPT => self.come = Vec::new(),
            true => self.come.clear(),
            false => drop(self.come.drain(..self.taken)),
        }
        self.taken = 0;
        self.come.reserve(BLOCK);
        if let Senders::Noted(sender) = &mut self.senders {
            return match recv_noted(&self.stream, &mut self.come, flags) {
                Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
                Ok((_, of)) => {
                    *sender = of;
                    Ok(true)
                }
                Err(Errno::AGAIN | Errno::INTR) => Ok(false),
                Err(error) => Err(error.into()),
            };
        }
        match recv(&self.stream, spare_capacity(&mut self.come), flags) {
            Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The next complete frame, as bytes.
    ///
    /// # Errors
    /// If it is longer than the limit.
    pub fn take_raw(&mut self) -> io::Result<Option<&[u8]>> {
        let rest = &self.come[self.taken..];
        let Some((len, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let len = u32::from_le_bytes(*len) as usize;
        if len > self.limit {
            let why = format!("a frame of {len} bytes: at most {} are allowed", self.limit);
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        if rest.len() < len {
            return Ok(None);
        }
        let start = self.taken + 4;
        self.taken = start + len;
        Ok(Some(&self.come[start..start + len]))
    }

    /// The next complete line, without its end.
    ///
    /// # Errors
    /// If none ends within `limit` bytes.
    pub fn take_line(&mut self, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let rest = &self.come[self.taken..];
        let end = rest.iter().take(limit + 1).position(|byte| *byte == b'\n');
        let Some(end) = end else {
            return match rest.len() > limit {
                true => Err(io::Error::new(ErrorKind::InvalidData, "a line without an end")),
                false => Ok(None),
            };
        };
        let line = rest[..end].to_vec();
        self.taken += end + 1;
        Ok(Some(line))
    }

    /// All bytes that have come and were not taken.
    pub fn come(&self) -> &[u8] {
        &self.come[self.taken..]
    }

    /// Marks bytes of it as taken.
    pub fn skip(&mut self, len: usize) {
        self.taken = (self.taken + len).min(self.come.len());
    }

    /// Queues bytes as they are.
    pub fn push_raw(&mut self, bytes: Vec<u8>) {
        self.backlog += bytes.len();
        self.going.push_back(bytes);
    }

    /// The next complete frame, as a value.
    ///
    /// # Errors
    /// If it is longer than the limit, or cannot be decoded.
    pub fn take<T: Wire>(&mut self) -> io::Result<Option<T>> {
        let Some(bytes) = self.take_raw()? else { return Ok(None) };
        let value = from_bytes(Encoding::Native, bytes);
        value.map(Some).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }
}

impl AsFd for Frames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(limit: usize) -> (Frames, Frames, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        let raw = a.try_clone().unwrap();
        (Frames::new(Stream::Unix(a), limit), Frames::new(Stream::Unix(b), limit), raw)
    }

    #[test]
    fn values_of_all_sizes_arrive_in_order() {
        let (mut a, mut b, _) = pair(10 << 20);
        let values: Vec<Vec<u8>> =
            (0..40u32).map(|n| vec![n as u8; (n * n * n * 40) as usize]).collect();
        values.iter().for_each(|value| a.push(value).unwrap());
        let mut come = Vec::new();
        while come.len() < values.len() {
            a.flush().unwrap();
            b.fill().unwrap();
            while let Some(value) = b.take::<Vec<u8>>().unwrap() {
                come.push(value);
            }
        }
        assert!(come == values && a.backlog() == 0);
    }

    #[test]
    fn what_would_be_refused_is_not_sent() {
        let (mut a, mut b, _) = pair(100);
        let error = a.push(&vec![1u8; 1000]).unwrap_err();
        assert!(error.to_string().contains("more than the 100"), "{error}");
        a.push(&vec![2u8; 10]).unwrap();
        assert!(a.flush().unwrap());
        b.fill().unwrap();
        assert_eq!(b.take::<Vec<u8>>().unwrap(), Some(vec![2; 10]));
    }

    #[test]
    fn garbage_is_refused() {
        let (_a, mut b, mut raw) = pair(100);
        raw.write_all(&[101, 0, 0, 0]).unwrap();
        b.fill().unwrap();
        assert!(b.take_raw().unwrap_err().to_string().contains("101 bytes"));
        let (_a, mut b, mut raw) = pair(100);
        raw.write_all(&[3, 0, 0, 0, 9, 9, 9]).unwrap();
        b.fill().unwrap();
        assert!(b.take::<String>().is_err());
        let (a, mut b, raw) = pair(100);
        drop((a, raw));
        assert_eq!(b.fill().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
