//! The client against a mock server.

use super::*;
use crate::{
    JobId,
    event::Range,
    job::{JobSpec, NodeInfo, Run},
};
use buffer::{Reader, Typed, Writer};
use std::{
    net::TcpListener,
    thread::{self, JoinHandle},
};

/// A server for one client, with its answers to the handshake and to the request for job data, and
/// what it does then.
fn server(
    answers: Vec<Vec<u8>>,
    more: impl FnOnce(TcpStream) + Send + 'static,
) -> (Setting, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("job.0;tcp4://{}", listener.local_addr().unwrap());
    let run = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut header = [0; HEADER];
        stream.read_exact(&mut header).unwrap();
        let len = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        stream.read_exact(&mut vec![0; len as usize]).unwrap();
        for answer in answers {
            let _ = stream.write_all(&answer);
        }
        more(stream);
    };
    let setting = Setting {
        uris: vec![uri],
        space: "job".into(),
        rank: 1,
        security: None,
        events: Events::WithinNode,
    };
    (setting, thread::spawn(run))
}

fn framed(tag: u32, payload: &[u8]) -> Vec<u8> {
    [&header(0, tag, payload.len())[..], payload].concat()
}

/// Job data of two ranks on one node.
fn job() -> Vec<u8> {
    let mut out = Writer::default();
    out.count(1);
    out.text("job");
    out.pair("pmix.job.size", &2u64.into());
    framed(1, &out.0)
}

fn welcome() -> Vec<u8> {
    [0u32.to_be_bytes(), 7u32.to_be_bytes()].concat()
}

#[test]
fn servers_that_make_no_sense_are_refused() {
    let long = header(0, 1, MAX_MESSAGE + 1);
    let cases: [Vec<Vec<u8>>; 6] = [
        vec![],
        vec![vec![0, 0, 0]],
        vec![(-23i32).to_be_bytes().to_vec()],
        vec![welcome(), long],
        vec![welcome(), framed(1, b"\x02\x02")],
        vec![welcome(), framed(1, &[0xff; 100])],
    ];
    for answers in cases {
        let (setting, thread) = server(answers.clone(), drop);
        assert!(connect(&setting).is_err(), "{answers:?}");
        thread.join().unwrap();
    }
    let nowhere = Setting {
        uris: vec!["nonsense".into(), "a;usock://x".into()],
        space: "job".into(),
        rank: 0,
        security: None,
        events: Events::Anywhere,
    };
    assert!(connect(&nowhere).err().unwrap().to_string().contains("no address"));
}

#[test]
fn events_go_as_far_as_the_server_carries_them() {
    for (events, here, everywhere) in [
        (Events::Anywhere, true, true),
        (Events::WithinNode, true, false),
        (Events::Nowhere, false, false),
    ] {
        let run = |node| Run { node: Node(node), count: 1 };
        let info = || NodeInfo { name: "n".into(), base: String::new(), first: 0 };
        let spec = JobSpec {
            id: JobId(0),
            name: "job".into(),
            nodes: vec![info(), info()],
            runs: vec![run(0), run(1)],
            info: Vec::new(),
        };
        let map = JobMap::new(spec).unwrap();
        let mut translator = Translator::new(&map, map.proc(0), Node(0), "job".into());
        translator.events = events;
        for (range, offered) in [(Range::Local, here), (Range::Namespace, everywhere)] {
            let what = Request::Notify { code: 5, range, non_default: false, info: Vec::new() };
            assert_eq!(translator.encode(what).is_ok(), offered, "{events:?}");
        }
    }
}

/// A connection, and the other end of it.
fn connection(
    more: impl FnOnce(TcpStream) + Send + 'static,
) -> (super::super::Connection, JoinHandle<()>) {
    let (setting, thread) = server(vec![welcome(), job()], |mut stream| {
        // The request for job data.
        message(&mut stream).unwrap();
        more(stream);
    });
    let found = connect(&setting).unwrap();
    assert_eq!((found.map.size(), found.proc.rank, found.node), (2, 1, Node(0)));
    (super::super::Connection::pmix(found.stream, found.dialect).unwrap(), thread)
}

const SOON: Duration = Duration::from_secs(20);

#[test]
fn answers_find_their_questions_among_events_and_strays() {
    let (connection, thread) = connection(|mut stream| {
        let (tag, asked) = message(&mut stream).unwrap();
        let mut from = Reader(&asked);
        assert_eq!((from.count().unwrap(), from.byte().unwrap()), (1, 7));
        // A stray answer, an event for another rank, one for all, and the answer, in small pieces.
        let event = |to: Option<u32>| {
            let mut out = Writer::default();
            out.command(12);
            out.count(1);
            out.signed(-7);
            out.count(1);
            out.name(&buffer::Name { space: "job".into(), rank: 0 });
            let names = to.map(|rank| vec![buffer::Name { space: "job".into(), rank }]);
            let mut infos = vec![("why", Typed::Plain("because".into()))];
            infos.extend(names.map(|names| ("pmix.evrange", Typed::Procs(names))));
            out.infos(&infos);
            framed(0, &out.0)
        };
        let mut answer = Writer::default();
        answer.count(1);
        answer.signed(0);
        answer.count(1);
        answer.unsigned(1);
        answer.count(1);
        answer.name(&buffer::Name { space: "job".into(), rank: 0 });
        answer.text("key");
        answer.typed(&Typed::Plain(5u64.into()));
        let all = [framed(999, b"\x02\x00"), event(Some(0)), event(None), framed(tag, &answer.0)];
        for part in all.concat().chunks(7) {
            stream.write_all(part).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    let lookup =
        Request::Lookup { keys: vec!["key".into()], wait: None, least: 0, within: Range::Global };
    let Answer::Found(found) = connection.call(lookup, SOON).unwrap() else { panic!() };
    assert_eq!((found[0].1.clone(), found[0].2.rank), (5u64.into(), 0));
    let Some(super::super::connection::Item::Event { event, .. }) = connection.next_item() else {
        panic!()
    };
    assert_eq!((event.code, event.source.rank), (-7, 0));
    assert_eq!(event.info, [("why".to_owned(), "because".into())]);
    thread.join().unwrap();
    assert!(matches!(connection.call(Request::Finalize, SOON), Err(JobError::Lost(_))));
}

#[test]
fn an_answer_that_is_cut_short_ends_the_connection() {
    let (connection, thread) = connection(|mut stream| {
        let (tag, _) = message(&mut stream).unwrap();
        stream.write_all(&framed(tag, &[0x02, 0x00, 0x02, 0x7f, 1])).unwrap();
        let _ = message(&mut stream);
    });
    let get = Request::Get {
        proc: Proc::new(crate::JobId(0), 0),
        key: "key".into(),
        timeout: None,
        immediate: true,
        wait: false,
    };
    assert!(matches!(connection.call(get, SOON), Err(JobError::Lost(_))));
    drop(connection);
    thread.join().unwrap();
}

#[test]
fn a_server_that_is_silent_is_not_waited_for_for_ever() {
    let (connection, thread) = connection(|mut stream| {
        let _ = message(&mut stream);
        let _ = message(&mut stream);
    });
    let called = connection.call(Request::Finalize, Duration::from_millis(50));
    assert!(matches!(called, Err(JobError::Silent(_))), "{called:?}");
    // Requests that its protocol lacks are not sent to it.
    let query = connection.call(Request::Query(vec!["x".into()]), SOON);
    assert!(matches!(query, Err(JobError::NotOffered { .. })), "{query:?}");
    drop(connection);
    thread.join().unwrap();
}

#[test]
fn addresses_have_several_forms() {
    let of = |uri: &str| address(uri).map(|address| address.to_string());
    assert_eq!(of("1.0;tcp4://127.0.0.1:4711"), Some("127.0.0.1:4711".into()));
    assert_eq!(of("1.0;tcp6://[::1]:4711"), Some("[::1]:4711".into()));
    assert_eq!(of("1.0;tcp6://::1:4711"), Some("[::1]:4711".into()));
    for nonsense in ["", ";", "1.0;tcp4://", "1.0;tcp4://x:1", "1.0;tcp6://1", "tcp4://1.2.3.4:5"] {
        assert_eq!(of(nonsense), None, "{nonsense}");
    }
}
