//! The program's side of the border: a [`Medium`] that is the endpoint of a plug-in.
//!
//! All that a plug-in returns is checked here, once. One that breaks the rules, or has panicked, is
//! not called any more: what it serves ends, with an error that names its file.

use crate::{
    ConnectError, Medium, Readiness, Received, Sent,
    table::{MAX_TEXT, Opened, Ready, Room, Status, Table, Text},
};
use std::{
    ffi::c_void,
    os::fd::{BorrowedFd, RawFd},
    path::Path,
    ptr::null_mut,
    time::Duration,
};

/// An endpoint of a plug-in.
pub struct Foreign {
    table: &'static Table,
    file: &'static Path,
    endpoint: *mut c_void,
    fd: Option<RawFd>,
    max_packet: usize,
    address: String,
    /// Why it is not called any more.
    fault: Option<String>,
    /// Whether it was told its end in the process that opened it.
    ended: bool,
    text: Box<[u8; MAX_TEXT]>,
}

// SAFETY: the table's functions are called by one thread at a time, whichever it is, as the
// interface says; all else is of this type alone.
unsafe impl Send for Foreign {}

/// A required function, which the loader has seen.
macro_rules! function {
    ($table:expr, $name:ident) => {
        $table.$name.expect("the loader has seen it")
    };
}

impl Foreign {
    /// Opens an endpoint of a table that the loader has checked.
    pub(crate) fn open(
        table: &'static Table,
        file: &'static Path,
        at: &str,
    ) -> Result<Foreign, String> {
        let mut opened = Opened { endpoint: null_mut(), fd: -1, max_packet: 0 };
        let mut foreign = Foreign {
            table,
            file,
            endpoint: null_mut(),
            fd: None,
            max_packet: 0,
            address: String::new(),
            fault: None,
            ended: false,
            text: Box::new([0; MAX_TEXT]),
        };
        let (status, text) = foreign.call("open", &[Status::OK, Status::ERROR], |table, _, why| {
            // SAFETY: the function is the plug-in's, which is trusted to keep to the interface;
            // what is passed is valid for this call.
            unsafe { function!(table, open)(crossing(at), &mut opened, why) }
        });
        if status != Status::OK {
            return Err(match text.is_empty() {
                true => format!("{} gives no reason", file.display()),
                false => text,
            });
        }
        if opened.endpoint.is_null() {
            return Err(format!("{}: its open returned no endpoint", file.display()));
        }
        foreign.endpoint = opened.endpoint;
        foreign.max_packet = opened.max_packet as usize;
        foreign.fd = match opened.fd {
            -1 => None,
            // SAFETY: looks only whether this number is an open descriptor.
            fd if unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0 => Some(fd),
            fd => return Err(format!("{}: {fd} is no descriptor", file.display())),
        };
        let (status, address) = foreign.call("address", &[Status::OK], |table, endpoint, why| {
            // SAFETY: as above; the endpoint is open.
            unsafe { function!(table, address)(endpoint, why) }
        });
        match status {
            Status::OK => foreign.address = address,
            _ => return Err(address),
        }
        Ok(foreign)
    }

    /// Calls a function that may return these. What it returns comes with its text; if it may not
    /// be called, or breaks the rules, that is `CLOSED`, and why.
    fn call(
        &mut self,
        name: &str,
        allowed: &[Status],
        function: impl FnOnce(&Table, *mut c_void, *mut Room) -> Status,
    ) -> (Status, String) {
        if let Some(fault) = &self.fault {
            return (Status::CLOSED, fault.clone());
        }
        let mut room = Room { at: self.text.as_mut_ptr(), capacity: MAX_TEXT, len: 0 };
        let status = function(self.table, self.endpoint, &mut room);
        let text = match self.text.get(..room.len) {
            Some([]) => String::new(),
            Some(text) => printable(&String::from_utf8_lossy(text)),
            None => {
                return self.blame(format!("its {name} says that a text has {} bytes", room.len));
            }
        };
        match status {
            Status::PANICKED => self.blame(text),
            status if allowed.contains(&status) => (status, text),
            status => self.blame(format!("its {name} returned {}, which means nothing", status.0)),
        }
    }

    /// The plug-in is not called any more.
    fn blame(&mut self, what: String) -> (Status, String) {
        let fault = format!("the plug-in {}: {what}", self.file.display());
        self.fault = Some(fault.clone());
        (Status::CLOSED, fault)
    }
}

fn crossing(text: &str) -> Text {
    Text { at: text.as_ptr(), len: text.len() }
}

/// A text in one line, without what a terminal would obey.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

// SAFETY (all calls below): the functions are the plug-in's, which is trusted to keep to the
// interface; the endpoint is open; pointers are to memory of this call, as long as is said.
impl Medium for Foreign {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn max_packet(&self) -> usize {
        self.max_packet
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: it was open when the endpoint was, and the plug-in keeps it for as long.
        self.fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn connect(&mut self, line: u32, to: &str) -> Result<(), ConnectError> {
        let allowed = [Status::OK, Status::REFUSED, Status::ERROR];
        let (status, text) = self.call("connect", &allowed, |table, endpoint, why| {
            // SAFETY: see above.
            unsafe { function!(table, connect)(endpoint, line, crossing(to), why) }
        });
        match status {
            Status::OK => Ok(()),
            Status::ERROR => Err(ConnectError::Malformed(text)),
            _ => Err(ConnectError::Refused(text)),
        }
    }

    fn accept(&mut self, line: u32) -> bool {
        let allowed = [Status::OK, Status::LATER];
        let (status, _) = self.call("accept", &allowed, |table, endpoint, why| {
            // SAFETY: see above.
            unsafe { function!(table, accept)(endpoint, line, why) }
        });
        status == Status::OK
    }

    fn send(&mut self, line: u32, packet: &[u8]) -> Sent {
        let allowed = [Status::OK, Status::LATER, Status::CLOSED];
        let (status, text) = self.call("send", &allowed, |table, endpoint, why| {
            // SAFETY: see above.
            unsafe { function!(table, send)(endpoint, line, packet.as_ptr(), packet.len(), why) }
        });
        match status {
            Status::OK => Sent::All,
            Status::LATER => Sent::Later,
            _ => Sent::Closed(text),
        }
    }

    fn receive(&mut self, line: u32, into: &mut [u8]) -> Received {
        let allowed = [Status::OK, Status::LATER, Status::CLOSED];
        let (at, capacity, mut len) = (into.as_mut_ptr(), into.len(), 0);
        let (status, text) = self.call("receive", &allowed, |table, endpoint, why| {
            // SAFETY: see above.
            unsafe { function!(table, receive)(endpoint, line, at, capacity, &mut len, why) }
        });
        match status {
            Status::OK if len <= capacity => Received::Packet(len),
            Status::OK => {
                let what = format!("its receive says that a packet of {capacity} bytes has {len}");
                Received::Closed(self.blame(what).1)
            }
            Status::LATER => Received::Later,
            _ => Received::Closed(text),
        }
    }

    fn shut(&mut self, line: u32) {
        self.call("shut", &[Status::OK], |table, endpoint, _| {
            // SAFETY: see above.
            unsafe { function!(table, shut)(endpoint, line) };
            Status::OK
        });
    }

    fn poll(&mut self, ready: &mut Readiness<'_>) -> Result<(), String> {
        let (room, mut count) = (ready.room(), 0);
        let at: *mut Ready = ready.spare().as_mut_ptr();
        let allowed = [Status::OK, Status::ERROR];
        let (status, text) = self.call("poll", &allowed, |table, endpoint, why| {
            // SAFETY: see above.
            unsafe { function!(table, poll)(endpoint, at, room, &mut count, why) }
        });
        match status {
            Status::OK if count <= room => {
                ready.extend(count);
                Ok(())
            }
            Status::OK => {
                Err(self.blame(format!("its poll found {count} events, not at most {room}")).1)
            }
            Status::ERROR => Err(self.blame(text).1),
            _ => Err(text),
        }
    }

    fn arm(&mut self) -> Option<Duration> {
        let mut within = 0;
        let allowed = [Status::OK, Status::LATER];
        let (status, _) = self.call("arm", &allowed, |table, endpoint, why| {
            // SAFETY: see above.
            unsafe { function!(table, arm)(endpoint, &mut within, why) }
        });
        match (status, within) {
            (Status::OK, u64::MAX) => Some(Duration::MAX),
            (Status::OK, within) => Some(Duration::from_nanos(within)),
            // What is wrong, the next `poll` says.
            _ => None,
        }
    }

    fn end(&mut self) {
        self.ended = true;
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if !self.endpoint.is_null() {
            let close = function!(self.table, close);
            // SAFETY: the endpoint is open, and used no more.
            unsafe { close(self.endpoint, u32::from(self.ended)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Transport, table_of};

    /// Panics where it is told to.
    struct Panicky {
        at: String,
    }

    impl Panicky {
        fn reach(&self, here: &str) {
            assert!(self.at != here, "told to panic in {here}");
        }
    }

    impl Transport for Panicky {
        const SCHEME: &'static str = "panicky";
        const TITLE: &'static str = "panics";
        const ANY: &'static str = "panicky://*";

        fn open(address: &str) -> Result<Panicky, String> {
            let panicky = Panicky { at: address.replace("panicky://", "") };
            panicky.reach("open");
            Ok(panicky)
        }
    }

    impl Medium for Panicky {
        fn address(&self) -> String {
            self.reach("address");
            "panicky://here".to_owned()
        }

        fn max_packet(&self) -> usize {
            4096
        }

        fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn connect(&mut self, line: u32, _: &str) -> Result<(), ConnectError> {
            self.reach("connect");
            match line {
                0 => Ok(()),
                1 => Err(ConnectError::Refused("not now".to_owned())),
                _ => Err(ConnectError::Malformed("x".repeat(MAX_TEXT + 1))),
            }
        }

        fn accept(&mut self, line: u32) -> bool {
            self.reach("accept");
            line == 0
        }

        fn send(&mut self, line: u32, _: &[u8]) -> Sent {
            self.reach("send");
            match line {
                0 => Sent::All,
                1 => Sent::Later,
                _ => Sent::Closed("cut".to_owned()),
            }
        }

        fn receive(&mut self, line: u32, into: &mut [u8]) -> Received {
            self.reach("receive");
            into[0] = 7;
            match line {
                0 => Received::Packet(1),
                1 => Received::Later,
                _ => Received::Closed("cut".to_owned()),
            }
        }

        fn shut(&mut self, _: u32) {
            self.reach("shut");
        }

        fn poll(&mut self, ready: &mut Readiness<'_>) -> Result<(), String> {
            self.reach("poll");
            ready.acceptable();
            ready.readable(3);
            ready.writable(4);
            ready.readable(5);
            Ok(())
        }

        fn arm(&mut self) -> Option<Duration> {
            self.reach("arm");
            Some(Duration::from_micros(5))
        }

        fn end(&mut self) {
            self.reach("end");
        }
    }

    impl Drop for Panicky {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                self.reach("drop");
            }
        }
    }

    fn open(at: &str) -> Result<Foreign, String> {
        let table = Box::leak(Box::new(table_of::<Panicky>()));
        Foreign::open(table, Path::new("/x/panicky.so"), &format!("panicky://{at}"))
    }

    #[test]
    fn what_a_medium_says_crosses_the_border() {
        let mut foreign = open("nowhere").unwrap();
        assert_eq!((foreign.address().as_str(), foreign.max_packet()), ("panicky://here", 4096));
        assert!(foreign.fd().is_none());
        assert_eq!(foreign.connect(0, "panicky://there"), Ok(()));
        let refused = ConnectError::Refused("not now".to_owned());
        assert_eq!(foreign.connect(1, "panicky://there"), Err(refused));
        // A text is cut where there is no room for more.
        let malformed = ConnectError::Malformed("x".repeat(MAX_TEXT));
        assert_eq!(foreign.connect(2, "panicky://there"), Err(malformed));
        assert!(foreign.accept(0) && !foreign.accept(1));
        let cut = "cut".to_owned();
        assert_eq!(foreign.send(0, b"x"), Sent::All);
        assert_eq!(foreign.send(1, b"x"), Sent::Later);
        assert_eq!(foreign.send(2, b"x"), Sent::Closed(cut.clone()));
        let mut buffer = [0; 4];
        assert_eq!(foreign.receive(0, &mut buffer), Received::Packet(1));
        assert_eq!(buffer, [7, 0, 0, 0]);
        assert_eq!(foreign.receive(1, &mut buffer), Received::Later);
        assert_eq!(foreign.receive(2, &mut buffer), Received::Closed(cut));
        foreign.shut(0);
        let mut ready = [Ready::default(); 3];
        let mut readiness = Readiness::new(&mut ready);
        foreign.poll(&mut readiness).unwrap();
        assert_eq!(readiness.count(), 3, "what there is room for");
        let expected = [(crate::table::LISTENER, 1), (3, 1), (4, 2)];
        assert_eq!(ready, expected.map(|(line, what)| Ready { line, what }));
        assert_eq!(foreign.arm(), Some(Duration::from_micros(5)));
        foreign.end();
    }

    /// A panic becomes an error that names the file, and the endpoint is not used any more.
    #[test]
    fn a_panic_stays_on_its_side() {
        for at in ["open", "address"] {
            let error = open(at).err().unwrap();
            assert!(error.contains("/x/panicky.so"), "{error}");
            assert!(error.contains(&format!("it panicked: told to panic in {at}")), "{error}");
        }
        for at in ["connect", "accept", "send", "receive", "shut", "poll", "arm", "end", "drop"] {
            let mut foreign = open(at).unwrap();
            let mut buffer = [0; 4];
            match at {
                "connect" => drop(foreign.connect(0, "panicky://there")),
                "accept" => assert!(!foreign.accept(0)),
                "send" => assert!(matches!(foreign.send(0, b"x"), Sent::Closed(_))),
                "receive" => {
                    let received = foreign.receive(0, &mut buffer);
                    assert!(matches!(received, Received::Closed(_)));
                }
                "shut" => foreign.shut(0),
                "arm" => assert_eq!(foreign.arm(), None),
                "end" => foreign.end(),
                _ => {}
            }
            let mut ready = [Ready::default(); 3];
            let polled = foreign.poll(&mut Readiness::new(&mut ready));
            match at {
                "end" | "drop" => assert_eq!(polled, Ok(())),
                // A function that returns nothing reports by the next.
                _ => {
                    let error = polled.unwrap_err();
                    let says =
                        format!("the plug-in /x/panicky.so: it panicked: told to panic in {at}");
                    assert_eq!(error, says);
                }
            }
        }
    }
}
