//! The least of HTTP that a scrape needs: one thread, `GET /metrics`, an answer, the end.
//!
//! A client that reaches the address may send anything, at any pace. So all is bounded: at most
//! [`MOST_CLIENTS`] connections, of which the oldest makes way for a new one; a request of at most
//! [`LONGEST_REQUEST`] bytes, within [`REQUEST_TIME`] from the first byte to the last however
//! slowly they come; an answer that is taken within [`ANSWER_TIME`]. The text is made at most once
//! in [`FRESH`], however often it is asked for.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Where the metrics are.
pub(super) const PATH: &str = "/metrics";

/// Connections at a time.
const MOST_CLIENTS: usize = 32;

/// Bytes of a request, its header fields included.
const LONGEST_REQUEST: usize = 8 << 10;

/// How long a request may take to come.
const REQUEST_TIME: Duration = Duration::from_secs(2);

/// How long an answer may take to leave.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// How long a text is given again.
const FRESH: Duration = Duration::from_millis(200);

/// How long nothing is accepted after the system refused to.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers on a thread of its own, until it is dropped.
pub(super) struct Responder {
    address: SocketAddr,
    /// Its end is the thread's.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    pub(super) fn start(
        address: SocketAddr,
        text: impl Fn() -> String + Send + 'static,
    ) -> io::Result<Responder> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = UnixStream::pair()?;
        let mut served = Served { text: Box::new(text), made: None };
        let work = move || serve(&listener, &stopped, &mut served);
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(work)?;
        Ok(Responder { address, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been said, and is no reason for one here.
            let _ = thread.join();
        }
    }
}

/// The text, and when it was made.
struct Served {
    text: Box<dyn Fn() -> String + Send>,
    made: Option<(Instant, String)>,
}

impl Served {
    fn text(&mut self) -> &str {
        let now = Instant::now();
        if self.made.as_ref().is_none_or(|(at, _)| now.duration_since(*at) > FRESH) {
            self.made = Some((now, (self.text)()));
        }
        self.made.as_ref().map_or("", |(_, text)| text)
    }
}

fn serve(listener: &TcpListener, stopped: &UnixStream, served: &mut Served) {
    let mut clients: Vec<Client> = Vec::new();
    let mut paused: Option<Instant> = None;
    loop {
        let now = Instant::now();
        clients.retain(|client| client.until > now);
        paused = paused.filter(|until| *until > now);
        let Some(ready) = wait(listener, stopped, &clients, paused) else { return };
        let mut number = 0;
        clients.retain_mut(|client| {
            number += 1;
            !ready.clients[number - 1] || client.go_on(served)
        });
        if !ready.listener {
            continue;
        }
        match listener.accept() {
            Ok((socket, _)) if socket.set_nonblocking(true).is_ok() => {
                if clients.len() >= MOST_CLIENTS {
                    // A true client has been answered long before.
                    clients.remove(0);
                }
                clients.push(Client::new(socket));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "a scrape cannot be accepted");
                paused = Some(Instant::now() + PAUSE);
            }
        }
    }
}

/// What there is to do.
struct Ready {
    listener: bool,
    clients: Vec<bool>,
}

/// Waits until something can go on, or a time is over. Nothing when it is to end.
fn wait(
    listener: &TcpListener,
    stopped: &UnixStream,
    clients: &[Client],
    paused: Option<Instant>,
) -> Option<Ready> {
    let mut fds = vec![
        PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(
            listener.as_fd(),
            if paused.is_some() { PollFlags::empty() } else { PollFlags::IN },
        ),
    ];
    fds.extend(clients.iter().map(|client| PollFd::from_borrowed_fd(client.fd(), client.wants())));
    let next = clients.iter().map(|client| client.until).chain(paused).min();
    let timeout = next.map(|next| {
        // A moment longer, so that it is over then.
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => {
            tracing::warn!(%error, "metrics are not served any more");
            return None;
        }
    }
    let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    if ready(&fds[0]) {
        return None;
    }
    Some(Ready { listener: ready(&fds[1]), clients: fds[2..].iter().map(ready).collect() })
}

/// A connection.
struct Client {
    socket: TcpStream,
    request: Vec<u8>,
    /// What is left of the answer.
    answer: Option<Vec<u8>>,
    written: usize,
    until: Instant,
}

impl Client {
    fn new(socket: TcpStream) -> Client {
        let until = Instant::now() + REQUEST_TIME;
        Client { socket, request: Vec::new(), answer: None, written: 0, until }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn wants(&self) -> PollFlags {
        if self.answer.is_some() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Reads or writes what can be without waiting; false at the end of the connection.
    fn go_on(&mut self, served: &mut Served) -> bool {
        if self.answer.is_none() {
            match self.read() {
                Ok(Some(request)) => {
                    self.answer = Some(answer(request, served));
                    self.until = Instant::now() + ANSWER_TIME;
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        let Some(answer) = &self.answer else { return true };
        while self.written < answer.len() {
            match self.socket.write(&answer[self.written..]) {
                Ok(0) => return false,
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        false
    }

    /// The request, when it is complete or can only be wrong. An error at the end of the
    /// connection.
    fn read(&mut self) -> io::Result<Option<Request>> {
        let mut part = [0; 1024];
        loop {
            match self.socket.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.request.extend_from_slice(&part[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            if let Some(request) = Request::parse(&self.request) {
                return Ok(Some(request));
            }
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// The metrics, or their header alone.
    Metrics {
        body: bool,
    },
    NoSuchPath,
    NoSuchMethod,
    TooLong,
    Nonsense,
}

impl Request {
    /// None while more has to come.
    fn parse(bytes: &[u8]) -> Option<Request> {
        let ends = |end: &[u8]| bytes.windows(end.len()).any(|part| part == end);
        if !ends(b"\r\n\r\n") && !ends(b"\n\n") {
            return (bytes.len() > LONGEST_REQUEST).then_some(Request::TooLong);
        }
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let Ok(line) = str::from_utf8(line) else { return Some(Request::Nonsense) };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [method, target, version] = words[..] else { return Some(Request::Nonsense) };
        if !version.starts_with("HTTP/1.") {
            return Some(Request::Nonsense);
        }
        let path = target.split('?').next().unwrap_or_default();
        Some(match (method, path) {
            ("GET", PATH) => Request::Metrics { body: true },
            ("HEAD", PATH) => Request::Metrics { body: false },
            ("GET" | "HEAD", _) => Request::NoSuchPath,
            _ => Request::NoSuchMethod,
        })
    }
}

fn answer(request: Request, served: &mut Served) -> Vec<u8> {
    let (status, more) = match request {
        Request::Metrics { .. } => ("200 OK", ""),
        Request::NoSuchPath => ("404 Not Found", ""),
        Request::NoSuchMethod => ("405 Method Not Allowed", "Allow: GET, HEAD\r\n"),
        Request::TooLong => ("431 Request Header Fields Too Large", ""),
        Request::Nonsense => ("400 Bad Request", ""),
    };
    let (kind, body) = match request {
        Request::Metrics { .. } => ("text/plain; version=0.0.4; charset=utf-8", served.text()),
        Request::NoSuchPath => ("text/plain", "metrics are at /metrics\n"),
        _ => ("text/plain", ""),
    };
    let header = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{more}Connection: \
         close\r\n\r\n",
        body.len()
    );
    let body = if request == (Request::Metrics { body: false }) { "" } else { body };
    [header.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    fn responder() -> (Responder, Arc<AtomicU32>) {
        let made = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&made);
        let text = move || format!("made {}\n", count.fetch_add(1, Ordering::Relaxed) + 1);
        (Responder::start("127.0.0.1:0".parse().unwrap(), text).unwrap(), made)
    }

    fn connect(to: &Responder) -> TcpStream {
        let socket = TcpStream::connect(to.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    fn ask(to: &Responder, request: &str) -> String {
        let mut socket = connect(to);
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests() {
        let parse = |text: &str| Request::parse(text.as_bytes());
        let metrics = |body| Some(Request::Metrics { body });
        assert_eq!(parse("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), metrics(true));
        assert_eq!(parse("HEAD /metrics?a=b HTTP/1.0\n\n"), metrics(false));
        assert_eq!(parse("GET / HTTP/1.1\r\n\r\n"), Some(Request::NoSuchPath));
        assert_eq!(parse("POST /metrics HTTP/1.1\r\n\r\n"), Some(Request::NoSuchMethod));
        for nonsense in
            ["\r\n\r\n", "GET /metrics\r\n\r\n", "GET /metrics FTP/1\r\n\r\n", "a b c d\n\n"]
        {
            assert_eq!(parse(nonsense), Some(Request::Nonsense), "{nonsense:?}");
        }
        assert_eq!(Request::parse(b"GET \xff HTTP/1.1\r\n\r\n"), Some(Request::Nonsense));
        for part in ["", "GET /metrics HTTP/1.1", "GET /metrics HTTP/1.1\r\nHost: x\r\n"] {
            assert_eq!(parse(part), None, "{part:?}");
        }
        assert_eq!(parse(&"x".repeat(LONGEST_REQUEST + 1)), Some(Request::TooLong));
    }

    #[test]
    fn a_scrape() {
        let (responder, made) = responder();
        let text = ask(&responder, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(text.starts_with("HTTP/1.0 200 OK\r\n"), "{text}");
        assert!(
            text.contains("Content-Length: 7\r\n") && text.ends_with("\r\n\r\nmade 1\n"),
            "{text}"
        );
        let header = ask(&responder, "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(header.contains("200 OK") && header.ends_with("\r\n\r\n"), "{header}");
        assert!(ask(&responder, "GET /etc/passwd HTTP/1.1\r\n\r\n").contains("404"));
        assert!(ask(&responder, "DELETE /metrics HTTP/1.1\r\n\r\n").contains("405"));
        // However often it is asked for, it is not made anew each time.
        let begin = Instant::now();
        for _ in 0..50 {
            ask(&responder, "GET /metrics HTTP/1.0\r\n\r\n");
        }
        let most = begin.elapsed().as_millis() / FRESH.as_millis() + 2;
        assert!(u128::from(made.load(Ordering::Relaxed)) <= most + 1, "{made:?}");
    }

    /// Peers that say nothing, that say it slowly, that say too much, and that take no answer: a
    /// client that asks properly beside them is answered.
    #[test]
    fn slow_and_many_peers() {
        let (responder, _) = responder();
        let mut slow: Vec<TcpStream> = (0..4 * MOST_CLIENTS).map(|_| connect(&responder)).collect();
        for socket in &mut slow {
            // Those that had to make way are closed.
            let _ = socket.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
        }
        for _ in 0..3 {
            let text = ask(&responder, "GET /metrics HTTP/1.1\r\n\r\n");
            assert!(text.contains("200 OK"), "{text}");
            for socket in &mut slow {
                let _ = socket.write_all(b"y");
            }
        }
        // Too long a request is cut off while it is sent, and so is one that never ends.
        let mut long = connect(&responder);
        let cut = (0..1 << 14).any(|_| long.write_all(&[b'x'; 1024]).is_err());
        assert!(cut, "16 MiB of a request were taken");
        for mut socket in slow {
            let mut all = Vec::new();
            // Closed, or reset: what is not, times out with another error.
            if let Err(error) = socket.read_to_end(&mut all) {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
            }
        }
    }

    #[test]
    fn it_ends() {
        let (responder, _) = responder();
        let (address, mut open) = (responder.address(), connect(&responder));
        drop(responder);
        assert!(TcpStream::connect(address).is_err());
        assert_eq!(open.read(&mut [0]).unwrap_or(0), 0);
    }
}
