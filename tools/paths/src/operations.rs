//! Operations with their completions, both ends on one thread: by their events, and polled for.

use crate::{connect, timed};
use petasos::fabric::{
    Access, Completion, Endpoint, Event, Lease, Level, Operation, Payload, Peer, Region, Remote,
    RemoteSpan, Status, Time, Token,
};
use std::{collections::VecDeque, error::Error, time::Duration};

/// How far time goes on for each operation, so that the counts are the same every time.
const STEP: Duration = Duration::from_micros(1);
const DATA: &[u8] = b"8 bytes.";
/// Where the bytes lie in the owner's memory.
const SPAN: RemoteSpan = RemoteSpan { offset: 64, len: DATA.len() as u64 };
/// Receives of other messages that are posted before the one that is waited for.
const OTHERS: u64 = 10_000;
/// Operations until all is warm: memory is mapped, what is used again is there.
const WARM: u64 = 1000;

/// Two ends that are connected.
struct Line {
    ends: [Box<dyn Endpoint>; 2],
    /// The second at the first, and the reverse.
    peers: [Peer; 2],
    now: Time,
    queue: VecDeque<Operation>,
    events: Vec<Event>,
    message: Lease,
    /// Memory of the second end, in its transport.
    remote: Remote,
    /// Memory of 8 bytes, from and to which data goes.
    local: Region,
}

impl Line {
    fn new(url: &str) -> Result<Line, Box<dyn Error>> {
        let (mut ends, peers) = connect(url);
        let memory = ends[1].alloc(4096)?;
        let region = ends[1].register(&memory.whole(), Access::ALL)?;
        let key = ends[1].export(region)?;
        let remote = ends[0].import(&key)?;
        let (queue, events, message) = (VecDeque::new(), Vec::new(), Lease::default());
        let local = Region::from_vec(DATA.to_vec());
        let mut line = Line { ends, peers, now: Time(1), queue, events, message, remote, local };
        // The owner is asked for the descriptor of the memory; it is mapped once that came.
        for _ in 0..100 {
            line.submit(0, line.put());
            while line.pass(0) == 0 {
                line.pass(1);
            }
            line.pass(1);
            line.now = line.now.after(Duration::from_millis(2));
        }
        Ok(line)
    }

    /// Posts receives for which nothing comes.
    fn post_others(&mut self) {
        for tag in 0..OTHERS {
            let (token, source, into) =
                (Token(1000 + tag), Some(self.peers[1]), self.local.whole());
            let tag = 1000 + tag;
            self.submit(1, Operation::PostReceive { token, source, tag, ignore: 0, into });
        }
    }

    #[inline]
    fn put(&self) -> Operation {
        let (local, spans) = ([self.local.whole()].into(), [SPAN].into());
        let (token, remote, level) = (Token(3), self.remote, Level::Visible);
        Operation::Put { token, remote, local, spans, level, event: None }
    }

    #[inline]
    fn get(&self) -> Operation {
        let (local, spans) = ([self.local.whole()].into(), [SPAN].into());
        Operation::Get { token: Token(4), remote: self.remote, local, spans }
    }

    /// Sends a message and takes it in.
    #[inline]
    fn send(&mut self) {
        let (token, peer, payload) = (Token(1), self.peers[0], Payload::Bytes(DATA.into()));
        self.submit(0, Operation::Send { token, peer, payload, level: Level::Delivered });
        self.receive();
    }

    /// Posts a receive, and sends a message with its tag.
    #[inline]
    fn send_tagged(&mut self) {
        let (source, tag, ignore, into) = (Some(self.peers[1]), 5, 0, self.local.whole());
        self.submit(1, Operation::PostReceive { token: Token(2), source, tag, ignore, into });
        let (token, peer, payload) = (Token(1), self.peers[0], Payload::Bytes(DATA.into()));
        let level = Level::Reusable;
        self.submit(0, Operation::SendTagged { token, peer, tag, payload, level });
    }

    #[inline]
    fn submit(&mut self, end: usize, operation: Operation) {
        self.now = self.now.after(STEP);
        self.queue.push_back(operation);
        self.ends[end].submit(&mut self.queue);
        assert!(self.queue.is_empty(), "it was accepted");
    }

    /// Passes of one end until an operation of its own has completed.
    #[inline]
    fn complete(&mut self, end: usize) {
        while self.events.is_empty() {
            self.ends[end].progress(self.now, 64, &mut self.events);
        }
        let event = self.events.pop();
        assert!(matches!(event, Some(Event::Done { result: Ok(_), .. })), "{event:?}");
    }

    /// The next completion of one end.
    #[inline]
    fn next(&mut self, end: usize) -> Completion {
        loop {
            if let Some(completion) = self.ends[end].next_completion(self.now, &mut self.events) {
                return completion;
            }
            assert!(self.events.is_empty(), "{:?}", self.events);
        }
    }

    /// Passes of both ends until an operation of each has completed: a message may wait for what
    /// the other end reports.
    #[inline]
    fn complete_both(&mut self) {
        let mut open = 2;
        while open > 0 {
            open -= self.pass(0);
            open -= self.pass(1);
        }
    }

    /// The next completion of each end.
    #[inline]
    fn next_of_both(&mut self) -> [Completion; 2] {
        let mut next = [const { None }; 2];
        loop {
            for (end, next) in self.ends.iter_mut().zip(&mut next) {
                if next.is_none() {
                    *next = end.next_completion(self.now, &mut self.events);
                    assert!(self.events.is_empty(), "{:?}", self.events);
                }
            }
            match next {
                [Some(first), Some(second)] => return [first, second],
                left => next = left,
            }
        }
    }

    /// Takes in whatever has come to one end by one pass of it; completions that went well alone.
    #[inline]
    fn pass(&mut self, end: usize) -> usize {
        self.ends[end].progress(self.now, 64, &mut self.events);
        let done = |event: &Event| matches!(event, Event::Done { result: Ok(_), .. });
        assert!(self.events.iter().all(done), "{:?}", self.events);
        self.events.drain(..).count()
    }

    /// Takes one message of 8 bytes in.
    #[inline]
    fn receive(&mut self) {
        let mut came = self.ends[1].poll_message(&mut self.message).is_some();
        while !came {
            self.ends[1].progress(self.now, 64, &mut self.events);
            came = match self.events.pop() {
                Some(Event::Message { message, .. }) => {
                    self.message = message;
                    true
                }
                _ => self.ends[1].poll_message(&mut self.message).is_some(),
            };
        }
        assert_eq!(self.message[..], *DATA);
    }
}

/// Makes the function that is counted, of one round: a function of its own, as the rounds before
/// are not counted.
macro_rules! paths {
    ($($path:ident: $round:ident, |$line:ident| $body:expr;)+) => { $(
        #[inline(always)]
        fn $round($line: &mut Line) {
            $body
        }

        #[inline(never)]
        fn $path(line: &mut Line, count: u64) {
            (0..count).for_each(|_| $round(line));
        }
    )+ };
}

paths! {
    path_write: write, |line| {
        line.submit(0, line.put());
        line.complete(0);
    };
    path_polled_write: polled_write, |line| {
        line.submit(0, line.put());
        assert_eq!(line.next(0).status(), Status::Put);
    };
    path_read: read, |line| {
        line.submit(0, line.get());
        line.complete(0);
    };
    path_polled_read: polled_read, |line| {
        line.submit(0, line.get());
        assert_eq!(line.next(0).status(), Status::Got);
    };
    path_send: send, |line| {
        line.send();
        line.complete(0);
    };
    path_polled_send: polled_send, |line| {
        line.send();
        assert_eq!(line.next(0).status(), Status::Sent);
    };
    path_tagged: tagged, |line| {
        line.send_tagged();
        line.complete_both();
    };
    path_polled_tagged: polled_tagged, |line| {
        line.send_tagged();
        let [sent, received] = line.next_of_both();
        assert_eq!((sent.status(), received.len()), (Status::Sent, DATA.len() as u64));
    };
}

/// A round, what is counted of many, and whether other receives are posted before.
type Path = (fn(&mut Line), fn(&mut Line, u64), bool);

/// Runs a path, warm; `None` if there is no such path.
pub(crate) fn run(path: &str, count: u64, url: &str) -> Option<Result<Duration, Box<dyn Error>>> {
    let (round, counted, others): Path = match path {
        "write" => (write, path_write, false),
        "polled_write" => (polled_write, path_polled_write, false),
        "read" => (read, path_read, false),
        "polled_read" => (polled_read, path_polled_read, false),
        "send" => (send, path_send, false),
        "polled_send" => (polled_send, path_polled_send, false),
        "tagged" => (tagged, path_tagged, false),
        "tagged_behind" => (tagged, path_tagged, true),
        "polled_tagged" => (polled_tagged, path_polled_tagged, false),
        "polled_tagged_behind" => (polled_tagged, path_polled_tagged, true),
        _ => return None,
    };
    let mut line = match Line::new(url) {
        Ok(line) => line,
        Err(error) => return Some(Err(error)),
    };
    if others {
        line.post_others();
    }
    (0..WARM).for_each(|_| round(&mut line));
    Some(Ok(timed(|| counted(&mut line, count))))
}
