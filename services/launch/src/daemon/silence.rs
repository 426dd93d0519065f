//! Machines that fall silent: no end of a connection tells of a cut cable or of power that fails.
//!
//! Neighbours in the tree of all nodes say something to each other all the time, four times within
//! the time that a machine may be silent. One that says nothing for half of that may as well be
//! stopped, or wait for a processor among many others, and is not lost. So its *system* is asked:
//! it answers, or refuses, a connection by itself, whatever its processes do. Only a machine that
//! does not answer that either is lost.
//!
//! That begins when all daemons are ready, with the files that are brought to them, or with the
//! ranks. Before that, a daemon and the head node watch each other, where they are neighbours, from
//! the first word on: the ways between the others are not there yet.
//!
//! What cannot be told so is left to the kernel's own watch over connections, which takes longer:
//! the loss of a machine at which no such connection has ever arrived (a firewall may be before
//! it), and of one whose daemon has been silent for long, as each question waits there until the
//! daemon takes it.

use super::{
    Daemon,
    wake::{Wake, Waker},
};
use petasos_fabric::Time;
use petasos_pmix::Node;
use std::{
    collections::BTreeMap,
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// The shortest time that a machine may be silent.
const SHORTEST: Duration = Duration::from_millis(100);
/// Connections that are tried, one after the other, when a system is asked: a packet may be lost.
const TRIES: u32 = 3;
/// Questions before there is need, until one is answered.
const MOST_TRIED: u32 = 8;
/// Questions that a system answers in one silence of its daemon. Those of all neighbours wait in
/// one queue there.
const MOST_ANSWERS: u32 = 3;

/// Which node was heard when: a state machine, which knows neither sockets nor clocks.
#[derive(Debug)]
pub(crate) struct Silence {
    /// How long a machine may be silent; zero: none is watched.
    most: Duration,
    /// All daemons are ready, and watch their neighbours.
    watches_all: bool,
    next: Time,
    of: BTreeMap<Node, Heard>,
}

#[derive(Debug)]
struct Heard {
    last: Time,
    /// Its system is being asked.
    asked: bool,
    /// Its system has answered before there was need.
    answers: bool,
    /// How often it was asked for that.
    tried: u32,
    /// Answers since its daemon was last heard.
    alive: u32,
}

/// What is to be done about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Something is to be said to it.
    Say(Node),
    /// Its system is to be asked.
    Ask(Node),
}

impl Silence {
    pub(crate) fn new(most: Duration) -> Silence {
        let most = if most.is_zero() { most } else { most.max(SHORTEST) };
        Silence { most, watches_all: false, next: Time::NEVER, of: BTreeMap::new() }
    }

    /// There are neighbours to be watched from now on.
    fn begin(&mut self, now: Time) {
        if !self.most.is_zero() {
            self.next = self.next.min(now.after(self.most / 4));
        }
    }

    /// When it is to be looked at.
    pub(crate) fn deadline(&self) -> Time {
        self.next
    }

    /// A node has said something.
    fn heard(&mut self, node: Node, now: Time) {
        if let Some(heard) = self.of.get_mut(&node) {
            (heard.last, heard.alive) = (now, 0);
        }
    }

    /// How long a system may take to answer.
    fn patience(&self) -> Duration {
        self.most * 2 / 5
    }

    fn look(&mut self, now: Time, neighbours: &[Node]) -> Vec<Act> {
        if now < self.next {
            return Vec::new();
        }
        let half = self.most / 2;
        self.next = if neighbours.is_empty() { Time::NEVER } else { now.after(self.most / 4) };
        self.of.retain(|node, _| neighbours.contains(node));
        let mut acts = Vec::new();
        for node in neighbours {
            let heard = self.of.entry(*node).or_insert(Heard {
                last: now,
                asked: false,
                answers: false,
                tried: 0,
                alive: 0,
            });
            if heard.alive < MOST_ANSWERS {
                acts.push(Act::Say(*node));
            }
            let silent = now.since(heard.last) >= half;
            if !silent {
                self.next = self.next.min(heard.last.after(half));
            }
            let ask = match heard.answers {
                true => silent && heard.alive < MOST_ANSWERS,
                // Whether it can be asked at all is found out while there is no need.
                false => !silent && heard.tried < MOST_TRIED,
            };
            if ask && !heard.asked {
                heard.asked = true;
                heard.tried += 1;
                acts.push(Act::Ask(*node));
            }
        }
        acts
    }

    /// The system of a node has answered, or has not. Says whether the node is lost.
    fn answered(&mut self, now: Time, node: Node, alive: bool) -> bool {
        let half = self.most / 2;
        let Some(heard) = self.of.get_mut(&node).filter(|heard| heard.asked) else { return false };
        heard.asked = false;
        if !heard.answers {
            heard.answers = alive;
            return false;
        }
        heard.alive += u32::from(alive);
        !alive && now.since(heard.last) >= half
    }
}

impl Daemon {
    /// Neighbours to which there is a way are watched from now on.
    pub(super) fn begin_watching(&mut self) {
        self.silence.begin(self.clock.now());
    }

    /// All are ready, and watch their neighbours from now on: ways to these are made, so that their
    /// loss is noticed even if nothing is said.
    pub(super) fn watch_all(&mut self) {
        if !std::mem::replace(&mut self.silence.watches_all, true) {
            for node in self.engine.neighbours() {
                self.order_nothing(node);
            }
            self.begin_watching();
        }
    }

    fn watched(&self) -> Vec<Node> {
        let mut all = self.engine.neighbours();
        // Where no connection was made so far, nothing is waited for.
        all.retain(|node| self.silence.watches_all || self.peers.listens_at(*node).is_some());
        all
    }

    pub(super) fn heard(&mut self, node: Node) {
        self.silence.heard(node, self.clock.now());
    }

    /// Says something to the neighbours, and has those asked that say nothing; what has come by now
    /// was heard before.
    pub(super) fn look_for_silence(&mut self) {
        let now = self.clock.now();
        if now < self.silence.deadline() || self.over.is_some() {
            return;
        }
        let neighbours = self.watched();
        for act in self.silence.look(now, &neighbours) {
            match act {
                // What is on its way to it is as good.
                Act::Say(node) if self.peers.backlog(node) == 0 => self.order_nothing(node),
                Act::Say(_) => {}
                Act::Ask(node) => self.ask_system_of(node),
            }
        }
    }

    fn ask_system_of(&mut self, node: Node) {
        let (patience, waker) = (self.silence.patience(), self.waker.another());
        let (Some(address), Ok(waker)) = (self.peers.listens_at(node), waker) else {
            self.silence.answered(self.clock.now(), node, false);
            return;
        };
        let ask = move |waker: Waker| waker.tell(Wake::Asked(node, is_there(address, patience)));
        let thread = thread::Builder::new().name("silence".to_owned());
        if thread.spawn(move || ask(waker)).is_err() {
            // Nothing is known of it; it is asked again.
            self.silence.answered(self.clock.now(), node, true);
        }
    }

    pub(super) fn system_answered(&mut self, node: Node, alive: bool) {
        if self.silence.answered(self.clock.now(), node, alive) {
            let most = self.silence.most;
            self.lost(node, &format!("it was silent for {most:?}, and its system does not answer"));
        }
    }
}

/// Whether the system at an address answers within this time. What fails on this side is no sign
/// that it does not.
fn is_there(address: SocketAddr, patience: Duration) -> bool {
    let step = patience / TRIES;
    for _ in 0..TRIES {
        let since = Instant::now();
        match TcpStream::connect_timeout(&address, step) {
            Ok(_) => return true,
            Err(error) => match error.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => return true,
                ErrorKind::TimedOut
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::NetworkDown => thread::sleep(step.saturating_sub(since.elapsed())),
                _ => return true,
            },
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const A: Node = Node(1);

    fn at(ms: u64) -> Time {
        Time(0).after(Duration::from_millis(ms))
    }

    /// One neighbour, which has answered once.
    fn watched() -> Silence {
        let mut silence = Silence::new(Duration::from_secs(1));
        silence.begin(at(0));
        assert_eq!(silence.look(at(100), &[A]), []);
        assert_eq!(silence.look(at(250), &[A]), [Act::Say(A), Act::Ask(A)]);
        assert!(!silence.answered(at(251), A, true));
        silence
    }

    #[test]
    fn who_says_nothing_and_does_not_answer_is_lost_within_the_time() {
        let mut silence = watched();
        silence.heard(A, at(260));
        assert_eq!(silence.look(at(500), &[A]), [Act::Say(A)]);
        // Looked at just when half of the time is over.
        assert_eq!(silence.look(at(750), &[A]), [Act::Say(A)]);
        assert_eq!(silence.deadline(), at(760));
        assert_eq!(silence.look(at(760), &[A]), [Act::Say(A), Act::Ask(A)]);
        assert!(silence.patience() <= Duration::from_millis(400));
        assert!(silence.answered(at(1160), A, false));
    }

    #[test]
    fn who_is_heard_meanwhile_is_not() {
        let mut silence = watched();
        assert!(silence.look(at(800), &[A]).contains(&Act::Ask(A)));
        silence.heard(A, at(1100));
        assert!(!silence.answered(at(1200), A, false));
    }

    #[test]
    fn who_is_stopped_is_asked_a_few_times_and_left_to_the_kernel() {
        let mut silence = watched();
        let mut asked = 0;
        for now in (500..20_000).step_by(250).map(at) {
            let acts = silence.look(now, &[A]);
            if acts.contains(&Act::Ask(A)) {
                asked += 1;
                assert!(!silence.answered(now, A, true));
            }
        }
        assert_eq!(asked, MOST_ANSWERS);
        assert_eq!(silence.look(at(30_000), &[A]), []);
        silence.heard(A, at(30_001));
        assert_eq!(silence.look(at(31_000), &[A]), [Act::Say(A), Act::Ask(A)]);
    }

    #[test]
    fn who_could_never_be_asked_is_not_judged() {
        let mut silence = Silence::new(Duration::from_secs(1));
        silence.begin(at(0));
        silence.look(at(250), &[A]);
        assert!(!silence.answered(at(700), A, false));
        // It is tried again a few times, as long as it is heard.
        for now in (750..20_000).step_by(250) {
            silence.heard(A, at(now));
            let asked = silence.look(at(now), &[A]).contains(&Act::Ask(A));
            assert_eq!(asked, now < 2500, "{now}");
            assert!(!silence.answered(at(now), A, false));
        }
        assert_eq!(silence.look(at(25_000), &[A]), [Act::Say(A)]);
    }

    #[test]
    fn without_a_time_nobody_is_watched() {
        let mut silence = Silence::new(Duration::ZERO);
        silence.begin(at(0));
        assert_eq!((silence.deadline(), silence.look(at(9000), &[A])), (Time::NEVER, vec![]));
    }

    #[test]
    fn a_system_answers_for_processes_that_do_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        // It is not accepted.
        assert!(is_there(address, Duration::from_secs(9)));
        drop(listener);
        // There is no listener.
        assert!(is_there(address, Duration::from_secs(9)));
    }
}
