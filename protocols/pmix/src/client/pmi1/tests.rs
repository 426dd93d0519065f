//! The client against a mock launcher.

use super::*;
use crate::message::{Persistence, Published};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    net::TcpListener,
    thread::{self, JoinHandle},
};

/// A launcher of one process of two. `answer` gives the answers to what it does not handle itself.
fn launcher(
    mut answer: impl FnMut(&str) -> Option<String> + Send + 'static,
) -> (Setting, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let transport = Transport::Port(listener.local_addr().unwrap().to_string());
    let run = move || {
        let mut table = BTreeMap::new();
        let (mut stream, _) = listener.accept().unwrap();
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let Ok(line) = line else { return };
            let words = |name| field(&line, name).unwrap_or_default().to_owned();
            let reply = match answer(&line) {
                Some(reply) => reply,
                None => match words("cmd").as_str() {
                    "init" => "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".into(),
                    "initack" => {
                        "cmd=initack rc=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0".into()
                    }
                    "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=100".into(),
                    "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1".into(),
                    "put" => {
                        assert!(line.len() < 1023 && words("key").len() < 64, "{line}");
                        table.insert(words("key"), words("value"));
                        "cmd=put_result rc=0 msg=success".into()
                    }
                    "get" => match table.get(&words("key")) {
                        Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                        None => "cmd=get_result rc=-1 msg=not_found value=unknown".into(),
                    },
                    "barrier_in" => "cmd=barrier_out".into(),
                    "finalize" => "cmd=finalize_ack".into(),
                    other => format!("cmd={other}_result rc=1"),
                },
            };
            if stream.write_all(format!("{reply}\n").as_bytes()).is_err() {
                return;
            }
        }
    };
    (Setting { transport, rank: None, size: None, id: Some(1) }, thread::spawn(run))
}

const SOON: Duration = Duration::from_secs(20);

fn get(rank: u32, key: &str) -> Request {
    let (proc, key) = (Proc::new(JobId(0), rank), key.to_owned());
    Request::Get { proc, key, timeout: None, immediate: false, wait: false }
}

#[test]
fn cards_go_through_the_table_in_pieces() {
    // Launchers that take longer values do not take longer lines.
    for longest in [100, 1024, 1 << 20] {
        cards_go_through_a_table_of_values_of(longest);
    }
}

fn cards_go_through_a_table_of_values_of(longest: usize) {
    let (setting, thread) = launcher(move |line| {
        assert!(field(line, "value").is_none_or(|value| value.len() < longest), "{line}");
        let maxes = format!("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={longest}");
        line.contains("get_maxes").then_some(maxes)
    });
    let (map, client) = connect(&setting).unwrap();
    assert_eq!((map.size(), client.proc().rank), (2, 1));
    // Nothing of rank 0 was spread.
    assert!(matches!(client.call(get(0, "k"), SOON), Err(JobError::NotOffered { .. })));
    for (nth, len) in [(0u8, 0usize), (1, 10_000), (2, 70)] {
        let value: Vec<u8> = (0..len).map(|at| at as u8 ^ nth).collect();
        let entry = Entry { scope: crate::Scope::Global, value: value.clone().into() };
        client.call(Request::Commit(vec![(format!("k{nth}"), entry)]), SOON).unwrap();
        let found = client.call(get(1, &format!("k{nth}")), SOON).unwrap();
        let Answer::BusinessCard(card) = found else { panic!() };
        assert_eq!(card.version, u64::from(nth) + 1);
        assert_eq!(card.entries[&format!("k{nth}")].value, Value::Bytes(value));
    }
    let missing = client.call(get(1, "none"), SOON);
    assert!(matches!(missing, Err(JobError::Refused(Error::NotFound { .. }))), "{missing:?}");
    assert!(matches!(client.call(get(9, "k"), SOON), Err(JobError::Refused(Error::NoSuchProc(_)))));
    let huge = Entry { scope: crate::Scope::Global, value: vec![0; MAX_COMMIT].into() };
    let huge = client.call(Request::Commit(vec![("k".into(), huge)]), SOON);
    assert!(matches!(huge, Err(JobError::Refused(Error::Limit { .. }))));
    let all = Request::Fence { group: None, collect: true, timeout: None };
    assert_eq!(client.call(all, SOON).unwrap(), Answer::Done);
    let group = Some(Group::of([map.proc(1)]));
    let some = Request::Fence { group, collect: false, timeout: None };
    assert!(matches!(client.call(some, SOON), Err(JobError::NotOffered { .. })));
    let register = Request::Register { handler: 1, codes: vec![] };
    assert!(matches!(client.call(register, SOON), Err(JobError::NotOffered { .. })));
    client.call(Request::Finalize, SOON).unwrap();
    client.close();
    assert!(matches!(client.call(get(1, "k"), SOON), Err(JobError::Lost(_))));
    drop(client);
    thread.join().unwrap();
}

/// Some launchers show at once what a process puts, in the middle of its commit.
#[test]
fn a_card_that_is_not_whole_is_none() {
    let (setting, thread) = launcher(|line| {
        let begun = line.contains("cmd=get ") && field(line, "key") == Some("petasos-0-0-0");
        begun.then(|| "cmd=get_result rc=0 msg=success value=2.abc".to_owned())
    });
    let (_, client) = connect(&setting).unwrap();
    let early = client.call(get(0, "k"), SOON);
    assert!(matches!(early, Err(JobError::NotOffered { .. })), "{early:?}");
    let all = Request::Fence { group: None, collect: true, timeout: None };
    client.call(all, SOON).unwrap();
    let missing = client.call(get(0, "k"), SOON);
    assert!(matches!(missing, Err(JobError::NotOffered { .. })), "{missing:?}");
    client.close();
    drop(client);
    thread.join().unwrap();
}

#[test]
fn names_of_services_are_told_of_in_two_ways() {
    for (yes, no) in [("rc=0 msg=success", "rc=-1 msg=no"), ("info=ok", "info=fail")] {
        let port = text::encode(&to_vec(Encoding::Native, &Value::from("here")));
        let known = text::encode(b"known");
        let (setting, thread) = launcher(move |line| {
            let verdict = if line.contains(&known) { yes } else { no };
            match field(line, "cmd")? {
                "publish_name" => Some(format!("cmd=publish_result {verdict}")),
                "lookup_name" => Some(format!("cmd=lookup_result {verdict} port={port}")),
                _ => None,
            }
        });
        let (_, client) = connect(&setting).unwrap();
        let publish = |key: &str| {
            let (range, persistence) = (Range::Session, Persistence::Session);
            let what = Published { key: key.into(), value: "here".into(), range, persistence };
            client.call(Request::Publish(what), SOON)
        };
        assert_eq!(publish("known").unwrap(), Answer::Done);
        assert!(matches!(publish("other"), Err(JobError::Refused(Error::Published(_)))));
        let lookup = |key: &str| {
            client.call(
                Request::Lookup {
                    keys: vec![key.into()],
                    wait: None,
                    least: 0,
                    within: Range::Global,
                },
                SOON,
            )
        };
        let Answer::Found(found) = lookup("known").unwrap() else { panic!() };
        assert_eq!(found[0].1, Value::from("here"));
        assert!(matches!(lookup("other"), Err(JobError::Refused(Error::NotPublished(_)))));
        drop(client);
        thread.join().unwrap();
    }
}

#[test]
fn launchers_that_make_no_sense_are_refused() {
    for (word, reply) in [
        ("initack", "x".to_owned()),
        ("initack", "cmd=initack\ncmd=set size=4000000000\ncmd=set rank=0\ncmd=set".to_owned()),
        ("initack", "cmd=initack\ncmd=set size=2\ncmd=set rank=2\ncmd=set".to_owned()),
        ("init", "cmd=response_to_init rc=-1".to_owned()),
        ("get_maxes", "y".repeat(2 * MAX_LINE)),
        ("get_my_kvsname", "cmd=my_kvsname".to_owned()),
        ("key=PMI_process_mapping", "cmd=get_result rc=0 value=(vector,(0,0,0))".to_owned()),
    ] {
        let matches = move |line: &str| line.contains(word).then(|| reply.clone());
        let (setting, thread) = launcher(matches);
        assert!(connect(&setting).is_err(), "{word}");
        thread.join().unwrap();
    }
}

#[test]
fn cards_that_make_no_sense_end_the_connection() {
    for value in ["", "x", "0", "0.A", "0.AAAA", "0.=", "99999999999999999999.A"] {
        let reply = format!("cmd=get_result rc=0 msg=success value={value}");
        let matches = move |line: &str| line.contains("key=petasos-0-0-0").then(|| reply.clone());
        let (setting, thread) = launcher(matches);
        let (_, client) = connect(&setting).unwrap();
        client.call(Request::Fence { group: None, collect: true, timeout: None }, SOON).unwrap();
        let got = client.call(get(0, "k"), SOON);
        assert!(matches!(got, Err(JobError::Lost(_))), "{value}: {got:?}");
        assert!(matches!(client.call(get(1, "k"), SOON), Err(JobError::Lost(_))));
        drop(client);
        thread.join().unwrap();
    }
    // It does not answer at all.
    let (setting, thread) = launcher(|line| line.contains("barrier").then(|| "\0".repeat(9)));
    let (_, client) = connect(&setting).unwrap();
    let fence = Request::Fence { group: None, collect: true, timeout: None };
    assert!(client.call(fence, Duration::from_millis(100)).is_err());
    drop(client);
    thread.join().unwrap();
}

#[test]
fn a_descriptor_is_taken_by_its_number() {
    use std::os::fd::AsRawFd;
    let (ours, theirs) = UnixStream::pair().unwrap();
    let again = descriptor(theirs.as_raw_fd()).unwrap();
    assert_ne!(again.as_raw_fd(), theirs.as_raw_fd());
    File::from(again).write_all(b"x").unwrap();
    let mut byte = [0];
    (&ours).read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
    assert!(descriptor(1 << 20).is_err() && descriptor(-1).is_err());
}
