//! Looking into running jobs.

use crate::{
    common::{Place, until, wait},
    ranks,
};
use petasos_pmix::{Job, Reply, chain::Registration};
use petasos_testing::role;
use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::mpsc::channel,
    time::Duration,
};

#[test]
fn a_job_is_seen_and_told() {
    let name = "jobs::a_job_is_seen_and_told";
    if role().is_some() {
        let job = Job::init().unwrap();
        let (sender, receiver) = channel();
        let with = Registration { codes: vec![77], ..Registration::default() };
        job.on_event(with, move |event, _| {
            sender.send(event.info[0].1.to_string()).unwrap();
            Reply::seen()
        })
        .unwrap();
        job.fence().unwrap();
        println!("\nready");
        let said = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(said, "to the boats");
        job.fence().unwrap();
        return job.finalize().unwrap();
    }
    let place = Place::new();
    place.run(&["ps"]).assert(0);
    place.run(&["query", "pmix.job.size"]).assert(3).says("no such job");
    let mut child = ranks(&place, &["-n", "2"], name);
    let mut child = child.arg("--skip=\u{1b}]0;x\n").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The others get here, too: the fence is behind them.
    assert!(lines.any(|line| line == "ready"));
    let seen = place.run(&["ps", "--json"]).assert(0).json();
    let ranks = seen[0]["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    assert!(ranks.iter().all(|rank| rank["state"] == "connected"), "{seen}");
    // Its arguments are the user's own, and may be anything.
    for command in [&["ps"][..], &["query", "petasos.command"]] {
        let shown = place.run(command).assert(0).out;
        assert!(shown.contains("\\u{1b}]0;x") && !shown.contains('\u{1b}'), "{shown:?}");
    }
    let info = place.run(&["query", "pmix.job.size", "petasos.nodes", "--json"]).assert(0).json();
    assert_eq!(info["pmix.job.size"], 2);
    place.run(&["query", "weather"]).assert(1).says("weather");
    // Some events are only for processes that ask for them by code.
    place.run(&["notify", "--by-code", "78"]).assert(0);
    place.run(&["notify", "79"]).assert(0);
    for (options, code) in [(&[][..], 79), (&["--code", "78"], 78), (&["--code=78,79"], 78)] {
        let events = [&["events", "--json", "--count", "1"], options].concat();
        assert_eq!(place.run(&events).assert(0).json()["code"], code);
    }
    place.run(&["notify", "--ranks", "1,2", "78"]).assert(2).says("the job has no rank 2");
    place.run(&["notify", "78", "no name"]).assert(2).says("`no name` is not NAME=TEXT");
    place.run(&["notify", "0"]).assert(2).says("0 is the code of success");
    place.run(&["notify", "78", "=text"]).assert(2).says("has no name");
    // What comes from others is one line, of which a terminal obeys nothing.
    let hostile = "gone\n79 from job 0: \u{1b}[2Jwhat=all is well\u{202e}\r";
    place.run(&["notify", "80", &format!("what={hostile}")]).assert(0);
    let shown = place.run(&["events", "--count", "1", "--code", "80"]).assert(0).out;
    assert_eq!(shown.lines().count(), 1, "{shown:?}");
    assert!(
        shown.contains("what=gone\\n79 from job 0: \\u{1b}[2Jwhat=all is well\\u{202e}\\r"),
        "{shown:?}"
    );
    // Programs get it as it is.
    let events = ["events", "--json", "--count", "1", "--code", "80"];
    assert_eq!(place.run(&events).assert(0).json()["info"]["what"], hostile);
    let named = place.run(&["notify", "80", "a\u{1b}b=text"]).assert(2).err;
    assert!(!named.contains('\u{1b}'), "{named:?}");
    // One process listens, another one notifies.
    let mut listening = place.command(&["events", "--json", "--count", "1", "--code", "77"]);
    let mut listening = listening.stdout(Stdio::piped()).spawn().unwrap();
    let mut heard = BufReader::new(listening.stdout.take().unwrap()).lines();
    place.run(&["notify", "77", "what=to the boats"]).assert(0);
    let heard = heard.next().unwrap().unwrap();
    assert!(heard.contains("to the boats") && heard.contains("77"), "{heard}");
    assert!(wait(&mut listening, Duration::from_secs(10)).success());
    assert!(wait(&mut child, Duration::from_secs(20)).success());
    until("no job", || place.run(&["ps"]).out.contains("no job").then_some(()));
    place.assert_clean();
}
