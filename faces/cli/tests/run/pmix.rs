//! Programs on the client library of OpenPMIx (package `libpmix-dev`), as its users write them.

use crate::{
    common::{Place, wait},
    hosts::{START, on_a, three},
    text,
};
use petasos_pmix::{
    Job, Reply, Scope, Value, chain::Registration, event::Range, message::Persistence,
};
use petasos_testing::{Hosts, role, skip};
use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    sync::mpsc::channel,
    time::Duration,
};

const SOON: Duration = Duration::from_secs(20);

/// The program, if it can be built here.
pub(crate) fn program(place: &Place) -> Option<PathBuf> {
    built(place, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/pmix.c"), "pmix")
}

/// A program on that library, if it can be built here.
pub(crate) fn built(place: &Place, source: &str, name: &str) -> Option<PathBuf> {
    let machine = Command::new("gcc").arg("-print-multiarch").output();
    let machine = machine.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    let base = PathBuf::from(format!("/usr/lib/{}/pmix2", machine.unwrap_or_default()));
    if !base.join("include/pmix.h").exists() {
        skip("the client library of OpenPMIx (packages libpmix-dev, gcc) is not here");
        return None;
    }
    let program = place.path(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-o"]).arg(&program).arg(source).arg("-I").arg(base.join("include"));
    gcc.arg("-I").arg(base.join("include/pmix")).arg("-L").arg(base.join("lib"));
    let built = gcc.args(["-lpmix", "-lpthread"]).output().unwrap();
    assert!(built.status.success(), "{}", text(&built));
    Some(program)
}

#[test]
fn a_program_does_all_that_is_here() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let ran = place.run(&["run", "-n", "4", program.to_str().unwrap(), "all"]).assert(0);
    for rank in 0..4 {
        let data = format!("rank {rank} of 4: local {rank} of 4 (0,1,2,3), node 0 of 1, ");
        assert!(ran.out.contains(&data), "{ran:?}");
        assert!(ran.out.contains(&format!("rank {rank} is well")), "{ran:?}");
    }
    place.assert_clean();
}

#[test]
fn what_is_found_in_part_says_so_and_what_cannot_be_is_refused() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let ran = place.run(&["run", "-n", "3", program.to_str().unwrap(), "strictly"]).assert(0);
    assert_eq!(ran.out.matches("is well").count(), 3, "{ran:?}");
    place.assert_clean();
}

#[test]
fn an_attribute_that_must_be_met_and_is_not_known_is_refused_by_each_call() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let ran = place.run(&["run", "-n", "2", program.to_str().unwrap(), "insistent"]).assert(0);
    assert_eq!(ran.out.matches("is well").count(), 2, "{ran:?}");
    place.assert_clean();
}

/// What is said of all that is larger than the limits.
pub(crate) const TOO_LARGE: [&str; 5] = [
    "rank 1: bytes of an event: 70003 is more than the 65536 that are allowed",
    "rank 0: what it committed was refused: bytes of a business card: 71304",
    "rank 0: a message of ",
    "it exited with code 0, and had failed: what it committed was refused: bytes of a business card",
    "rank 0: bytes of a value: 4194305 is more than the 4194304 that are allowed",
];

#[test]
fn what_is_said_may_be_as_long_as_the_limits_and_beyond_them_it_is_said_why_not() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    // Rank 0 has failed once it has ended: without this option the other one may be ended for it.
    let options = ["run", "-n", "2", "--keep-going", program.to_str().unwrap(), "large"];
    let ran = place.run(&options).assert(1);
    assert_eq!(ran.out.matches("is well").count(), 2, "{ran:?}");
    for why in TOO_LARGE {
        assert_eq!(ran.err.matches(why).count(), 1, "{why}: {ran:?}");
    }
    place.assert_clean();
}

#[test]
fn ranks_that_are_bound_know_what_they_share() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    if petasos_launch::inventory::binding().len() < 2 {
        return skip("there are not two processors here");
    }
    let program = program.to_str().unwrap();
    let ran = place.run(&["run", "-n", "2", "--bind", "core", program, "bound"]).assert(0);
    assert_eq!(ran.out.matches("is well").count(), 2, "{ran:?}");
    place.assert_clean();
}

#[test]
fn a_program_does_all_on_three_hosts() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let Some(hosts) = Hosts::several(3) else { return };
    let list = three(&hosts, [2, 1, 1]);
    let program = program.to_str().unwrap();
    let options = ["run", "-n", "4", "--hosts", &list, START[0], START[1], program, "all"];
    let output = on_a(&hosts, &place.command(&options)).output().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("is well").count(), 4, "{said}");
    assert!(said.contains("rank 1 of 4: local 1 of 2 (0,1), node 0 of 3, "), "{said}");
    assert!(said.contains("rank 3 of 4: local 0 of 1 (3), node 2 of 3, "), "{said}");
    place.assert_clean();
}

#[test]
fn a_rank_that_dies_is_an_event_for_the_others() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let options = ["run", "-n", "3", "--keep-going", program.to_str().unwrap(), "death"];
    let ran = place.run(&options).assert(7);
    assert_eq!(ran.out.matches("is well").count(), 2, "{ran:?}");
    place.assert_clean();
}

#[test]
fn a_rank_has_others_of_its_job_signalled_stopped_and_ended() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let options = ["run", "-n", "3", "--keep-going", program.to_str().unwrap(), "control"];
    let ran = place.run(&options).assert(137).says("rank 2 on ");
    assert_eq!(ran.out.matches("is well").count(), 2, "{ran:?}");
    place.assert_clean();
}

#[test]
fn a_program_that_aborts_ends_the_job() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let ran = place.run(&["run", "-n", "3", program.to_str().unwrap(), "abort"]);
    ran.assert(9).says("rank 1 on ").says("aborted the job: out of cheese");
    place.assert_clean();
}

#[test]
fn events_pass_between_a_program_and_the_commands() {
    let place = Place::new();
    let Some(program) = program(&place) else { return };
    let mut job = place.command(&["run", "-n", "2", program.to_str().unwrap(), "listen"]);
    let mut job = job.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"));
    let mut listening = place.command(&["events", "--json", "--count", "1", "--code", "-3501"]);
    let mut listening = listening.stdout(Stdio::piped()).spawn().unwrap();
    let mut heard = BufReader::new(listening.stdout.take().unwrap()).lines();
    place.run(&["notify", "-3500", "word=hello"]).assert(0);
    let heard = heard.next().unwrap().unwrap();
    assert!(heard.contains("-3501") && heard.contains("from within"), "{heard}");
    assert!(wait(&mut listening, SOON).success());
    place.run(&["notify", "-3500", "word=good bye"]).assert(0);
    assert_eq!(lines.filter(|line| line.ends_with("is well")).count(), 2);
    assert!(wait(&mut job, SOON).success());
    place.assert_clean();
}

/// Rank 0 is this test and speaks the native wire, rank 1 is the program.
#[test]
fn programs_of_both_kinds_understand_each_other() {
    let name = "pmix::programs_of_both_kinds_understand_each_other";
    if role().is_none() {
        let place = Place::new();
        let Some(program) = program(&place) else { return };
        let own = std::env::current_exe().unwrap();
        let script = format!(
            "[ $PETASOS_RANK = 1 ] && exec {} mixed; exec {} {name} --exact --nocapture",
            program.display(),
            own.display()
        );
        let mut command = place.command(&["run", "-n", "2", "--wire", "pmix", "sh", "-c", &script]);
        let output = command.env("PETASOS_TEST_ROLE", "rank").output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![-3501], ..Registration::default() };
    job.on_event(with, move |event, _| {
        sender.send((event.source.rank, event.info[0].1.to_string())).unwrap();
        Reply::seen()
    })
    .unwrap();
    job.put(Scope::Global, "native", "a text");
    job.put(Scope::Global, "list", vec![Value::Int(1), Value::from("two")]);
    job.commit().unwrap();
    job.publish("published", -4, Range::Session, Persistence::Session).unwrap();
    job.fence().unwrap();
    let number = job.get(1, "number").unwrap();
    assert_eq!((number.as_u64(), number.to_string()), (Some(17), "17".to_owned()));
    job.notify(-3500, Range::Namespace, vec![("word".into(), "from the native one".into())])
        .unwrap();
    let heard = receiver.recv_timeout(SOON).unwrap();
    assert_eq!(heard, (1, "to the native one".to_owned()));
    let (value, owner) = job.lookup("back", Some(SOON)).unwrap();
    assert_eq!((value, owner.rank), (Value::from("a word"), 1));
    job.fence().unwrap();
    job.finalize().unwrap();
}
