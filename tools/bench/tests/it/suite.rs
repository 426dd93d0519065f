//! `petasos bench`: what it measures, what it prints, and the page that it writes. Speed is not
//! asserted.

use crate::common::{Place, child_of, present, server_of, signal, until, wait};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Stdio,
    time::Duration,
};

/// The shortest run.
const BRIEF: [&str; 6] = ["--quick", "--rounds", "1", "--time", "1ms", "--json"];

fn bench(place: &Place, what: &[&str]) -> Value {
    place.run(&[&["bench"], what, &BRIEF].concat()).assert(0).json()
}

fn figures(report: &Value) -> &Vec<Value> {
    report["figures"].as_array().unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The figures of a plot, by panel, series and x.
fn plot<'a>(report: &'a Value, name: &str) -> Vec<(&'a str, &'a str, f64, &'a Value)> {
    let of = |figure: &'a Value| {
        let at = &figure["at"];
        let words = (at["panel"].as_str()?, at["series"].as_str()?);
        (at["plot"] == name).then(|| (words.0, words.1, number(&at["x"]), figure))
    };
    figures(report).iter().filter_map(of).collect()
}

fn panels<'a>(found: &[(&'a str, &'a str, f64, &'a Value)]) -> Vec<&'a str> {
    let mut panels: Vec<_> = found.iter().map(|found| found.0).collect();
    panels.sort_unstable();
    panels.dedup();
    panels
}

/// The page in `page` has these plots, each with a line in it.
fn shown(place: &Place, titles: &[&str]) {
    let page = fs::read_to_string(place.path("page/index.html")).unwrap();
    for title in titles {
        let (_, rest) = page.split_once(&format!("<h2>{title}</h2>")).expect(title);
        let section = rest.split("<h2>").next().unwrap();
        assert!(section.contains("<svg class=\"chart\""), "{title}: no plot");
        // The marks of the first line of Petasos.
        assert!(section.matches("<circle cx=").count() >= 2, "{title}: no line");
    }
}

/// Each figure is a number, and its ratio is that to its limit.
fn check(report: &Value) {
    assert!(!figures(report).is_empty(), "{report}");
    for figure in figures(report) {
        let value = number(&figure["value"]);
        // A count may be zero.
        let least = if ["a call", "a message"].contains(&figure["unit"].as_str().unwrap()) {
            0.0
        } else {
            f64::MIN_POSITIVE
        };
        assert!(value >= least && value.is_finite(), "{figure}");
        assert!(!figure["how"].as_str().unwrap().is_empty(), "{figure}");
        if figure["limit"].is_null() {
            continue;
        }
        let limit = number(&figure["limit"]["value"]);
        let ratio = number(&figure["ratio"]);
        assert!(limit > 0.0 && (ratio - value / limit).abs() <= 1e-9 * ratio, "{figure}");
    }
}

#[test]
fn echoes() {
    let place = Place::new();
    let report = bench(&place, &["echo", "--report", "page"]);
    check(&report);
    let plots = ["Latency by size", "Percentiles by size", "Percentiles by calls in flight"];
    shown(&place, &[&plots[..], &["Rate by calls in flight"]].concat());
    let latency = plot(&report, "latency");
    assert!(panels(&latency).contains(&"shm, blocking"), "{report}");
    let ours: Vec<_> = latency.iter().filter(|found| found.1 == "petasos").collect();
    assert_eq!(ours.len() % 5, 0, "{report}");
    assert_eq!(latency.len(), 2 * ours.len(), "as many in XDR: {report}");
    for (panel, _, x, figure) in ours {
        // The smallest size has no smaller one.
        assert_eq!(figure["step"].is_null(), *x == 0.0, "{panel}: {figure}");
    }
    for name in ["percentiles", "under-load"] {
        let mut tails: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for (panel, series, x, figure) in plot(&report, name) {
            let tail = tails.entry((panel, x as u64)).or_default();
            assert_eq!(series, ["p50", "p99", "p99.9"][tail.len()], "{figure}");
            tail.push(number(&figure["value"]));
        }
        assert!(!tails.is_empty(), "{report}");
        for (at, tail) in tails {
            assert!(tail.is_sorted() && tail.len() == 3, "{at:?}: {tail:?}");
        }
    }
    assert!(plot(&report, "rate").iter().any(|found| found.2 == 64.0), "{report}");
    place.assert_clean();
}

#[test]
fn bulk_data_in_pipelines_and_by_clients() {
    let place = Place::new();
    let report = bench(&place, &["bulk", "pipeline", "clients", "--transport", "shm"]);
    check(&report);
    for (name, least) in
        [("bandwidth", 8), ("pipeline", 5), ("overlap", 2), ("clients", 3), ("clients-bulk", 3)]
    {
        let found = plot(&report, name);
        assert!(found.len() >= least, "{name}: {report}");
        assert_eq!(panels(&found), ["shm"], "{name}");
    }
    for what in ["read in place, 1 MiB", "pulled and read, 16 MiB"] {
        assert_eq!(named(&report, "shm", what).len(), 1, "{what}: {report}");
    }
    place.assert_clean();
}

#[test]
fn clients_are_processes_that_end_with_the_command() {
    for (name, code) in [("INT", Some(130)), ("KILL", None)] {
        let place = Place::new();
        let arguments = ["bench", "clients", "--transport", "shm", "--time", "30s"];
        let mut command = place.command(&arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let client = until("a client process", || child_of(child.id(), "client-process"));
        let server = server_of(child.id()).expect("a server process");
        signal(child.id(), name);
        assert_eq!(wait(&mut child, Duration::from_secs(20)).code(), code);
        for process in [client, server] {
            let ended = || (!Path::new(&format!("/proc/{process}")).exists()).then_some(());
            until("the end of client and server", ended);
        }
        let empty = || fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
        until("an empty directory", empty);
    }
    Place::new().run(&["client-process"]).assert(2).says("petasos bench clients");
}

#[test]
fn what_was_measured_is_shown_when_the_run_is_cut_short() {
    let place = Place::new();
    // The first part is over soon, on a busy machine too. So many rounds of the second, which
    // starts tens of processes in each, take longer than the signal.
    let what = ["bench", "null", "clients", "--transport", "shm"];
    let how = ["--quick", "--rounds", "3", "--time", "1ms", "--json"];
    let mut command = place.command(&[&what[..], &how[..]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("a client process of the second part", || child_of(child.id(), "client-process"));
    signal(child.id(), "INT");
    assert_eq!(wait(&mut child, Duration::from_secs(20)).code(), Some(130));
    let report: Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    assert!(!named(&report, "shm", "null call, spinning").is_empty(), "{report}");
    assert!(report["skipped"].to_string().contains("cut short"), "{report}");
}

#[test]
fn a_part_that_fails_leaves_the_others() {
    let place = Place::new();
    let what = ["bench", "null", "pipeline", "--transport", "shm"];
    // The first part takes long enough for its server to be found.
    let how = ["--quick", "--rounds", "1", "--time", "500ms", "--json"];
    let mut command = place.command(&[&what[..], &how[..]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let server = until("a server process", || server_of(child.id()));
    signal(server, "KILL");
    let report: Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
    // Failed, or unreachable: as far as it had come when its server ended.
    let code = wait(&mut child, Duration::from_secs(60)).code();
    assert!(matches!(code, Some(1 | 3)), "{code:?}: {report}");
    assert!(named(&report, "shm", "null call, spinning").is_empty(), "{report}");
    assert!(!plot(&report, "pipeline").is_empty(), "{report}");
    assert!(report["skipped"].to_string().contains("shared memory"), "{report}");
}

#[test]
fn channels_bare_and_under_rpc() {
    let place = Place::new();
    let report = bench(&place, &["channels", "--report", "page"]);
    check(&report);
    shown(&place, &["Channels: latency by size", "Channels: bandwidth by size"]);
    for name in ["channels", "channel-bandwidth"] {
        let found = plot(&report, name);
        for panel in ["shm, messages", "tcp, messages", "shm, remote access", "tcp, remote access"]
        {
            let of_panel = || found.iter().filter(|found| found.0 == panel);
            let bare = of_panel().filter(|found| found.1.ends_with(", bare")).count();
            let rpc = of_panel().filter(|found| found.1.ends_with(", under RPC")).count();
            assert!(bare == rpc && bare >= 3, "{name}, {panel}: {bare}, {rpc}");
        }
    }
    for (scheme, channels) in [("shm", &["short packets", "ring"][..]), ("tcp", &["stream"])] {
        for channel in channels {
            rates(&report, scheme, channel, false);
        }
    }
    place.assert_clean();
}

/// Each of the channels over NICs, on a network that has them.
#[test]
fn channels_of_nics() {
    for network in present(&["ucx+posix"]) {
        let place = Place::new();
        let report = bench(&place, &["channels", "--transport", network]);
        check(&report);
        let panel = format!("{network}, messages, each channel");
        for name in ["channels", "channel-bandwidth"] {
            let found = plot(&report, name);
            for channel in ["MP", "shared RDMA", "exclusive RDMA", "by size"] {
                let series = [format!("{channel}, bare"), format!("{channel}, under RPC")];
                let of = |series: &String| {
                    found.iter().filter(|found| found.0 == panel && found.1 == series).count()
                };
                let [bare, rpc] = [of(&series[0]), of(&series[1])];
                assert!(bare == rpc && bare >= 3, "{name}, {panel}, {channel}: {bare}, {rpc}");
            }
        }
        for channel in ["MP", "shared RDMA", "exclusive RDMA"] {
            rates(&report, network, channel, true);
        }
        rates(&report, network, "by size", false);
        place.assert_clean();
    }
}

/// The rates of a channel that depend on credit, which can be made scarce or not.
fn rates(report: &Value, scheme: &str, channel: &str, scarce: bool) {
    for (row, limit, expected) in [
        ("hardly any credit, ", "the usual credit", usize::from(scarce)),
        ("slow receiver, ", "the receiver's own rate", 1),
        ("16 senders, ", "one sender", 1),
    ] {
        let found = named(report, scheme, &format!("{channel}, {row}"));
        assert_eq!(found.len(), expected, "{scheme}, {channel}, {row}: {report}");
        assert!(found.iter().all(|figure| figure["limit"]["name"] == limit), "{report}");
    }
    let waited = named(report, scheme, &format!("{channel}, slow receiver: waited"));
    assert_eq!(waited.len(), 1, "{scheme}, {channel}: {report}");
    assert!(number(&waited[0]["value"]) <= 1.0, "{report}");
}

/// The figures whose name begins like this.
fn named<'a>(report: &'a Value, scheme: &str, what: &str) -> Vec<&'a Value> {
    let is = |figure: &&Value| {
        figure["transport"] == scheme && figure["what"].as_str().unwrap().starts_with(what)
    };
    figures(report).iter().filter(is).collect()
}

#[test]
fn new_peers_and_their_first_calls() {
    let place = Place::new();
    let report = bench(&place, &["connect"]);
    check(&report);
    for (scheme, limit) in
        [("shm", "unix_connect_and_accept"), ("tcp", "tcp_connect_and_three_round_trips")]
    {
        for what in
            ["first call of a new peer,", "first call of a new peer p99,", "endpoint opened"]
        {
            let found = named(&report, scheme, what);
            // Blocking, and spinning where there are two cores.
            assert!((1..=2).contains(&found.len()), "{what}: {report}");
            for figure in found {
                assert_eq!(figure["unit"], "ns", "{figure}");
                assert_eq!(figure["limit"]["name"], limit, "{figure}");
                assert!(figure["samples"].as_u64().unwrap() >= 5, "{figure}");
            }
        }
    }
    place.assert_clean();
}

#[test]
fn two_engines_against_one() {
    let place = Place::new();
    let report = bench(&place, &["engines", "--transport", "shm"]);
    check(&report);
    for (what, unit) in [
        ("two engines, adaptive", "calls/s"),
        ("two engines, blocking", "calls/s"),
        ("two engines: on a core", "ns"),
        ("two engines: sleeps", "a call"),
        ("two engines: losses of the core", "a call"),
    ] {
        let found = named(&report, "shm", what);
        assert_eq!(found.len(), 1, "{what}: {report}");
        assert_eq!(found[0]["unit"], unit, "{what}");
    }
    let cores = report["machine"]["cores"].as_u64().unwrap();
    let both = named(&report, "shm", "two engines, both sides");
    assert_eq!(both.len(), usize::from(cores > 1), "{report}");
    place.assert_clean();
}

#[test]
fn puts_and_matching_among_many() {
    let place = Place::new();
    let report = bench(&place, &["portals", "--transport", "shm"]);
    check(&report);
    let cores = report["machine"]["cores"].as_u64().unwrap();
    for (what, figures) in [
        ("put, first of 1 entries", 1),
        ("put, last of 100000 entries", 2),
        ("put, with wildcards of 1000 entries", 2),
    ] {
        let found = named(&report, "shm", what);
        assert_eq!(found.len(), if cores > 1 { figures } else { 0 }, "{what}: {report}");
        assert!(found.iter().all(|figure| figure["unit"] == "ns"), "{what}: {report}");
    }
    for state in ["warm", "cold"] {
        let what = format!("match, last of 100000 entries, {state}");
        assert_eq!(named(&report, "match", &what).len(), 1, "{what}: {report}");
    }
    place.assert_clean();
}

#[test]
fn a_page_that_opens_anywhere() {
    let place = Place::new();
    let parts = ["limits", "null", "bulk", "pipeline", "clients", "--transport", "tcp"];
    let ran = place.run(&[&["bench", "--report", "a/b"], &parts[..], &BRIEF].concat()).assert(0);
    let results: Value =
        serde_json::from_str(&fs::read_to_string(place.path("a/b/results.json")).unwrap()).unwrap();
    assert_eq!(results, ran.json());
    for key in ["round_trips", "bulk"] {
        assert!(results["limits"][key].as_array().unwrap().len() >= 5, "{results}");
    }
    assert!(results["machine"]["kernel"].as_str().unwrap().starts_with("Linux"), "{results}");
    // The processor's use by others is read before.
    let in_use = results["machine"]["in_use_before"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&in_use), "{results}");
    let page = fs::read_to_string(place.path("a/b/index.html")).unwrap();
    assert!(page.contains("In use by others before"));
    for title in [
        "Rate by calls in flight",
        "Bandwidth by size",
        "Pipelined pull by block size and depth",
        "Moving and working at once",
        "Rate by clients",
        "Total bandwidth by clients",
        "The machine",
        "Ratios",
    ] {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    // A chart for each manner of waiting.
    assert!(page.matches("<svg class=\"chart\"").count() >= 7);
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    for word in ["http:", "https:", "src=", "@import", "url(", "<script", "<link"] {
        assert!(!outside.contains(word), "{word}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf\""), "coordinates are numbers");
    well_formed(&page);
    place.assert_clean();
}

/// Every element is closed where it should be.
fn well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        let name = tag.split([' ', '\n', '/']).find(|word| !word.is_empty()).unwrap();
        if tag.starts_with('!') || name == "meta" || tag.ends_with('/') {
            continue;
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed by {tag}");
        } else {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn experiments_of_papers() {
    let place = Place::new();
    let help = place.run(&["bench", "paper", "--help"]).assert(0).out;
    for word in ["null-call", "pipelined-bulk", "clients", "channels", "Mercury", "TH-Express"] {
        assert!(help.contains(word), "`{word}` is not in {help}");
    }
    let wrong = place.run(&["bench", "paper", "null-cal"]).assert(2);
    wrong.says("null-call, pipelined-bulk, clients, channels");
    let report = bench(&place, &["paper", "--transport", "shm", "--report", "page"]);
    check(&report);
    let plots: BTreeSet<_> =
        figures(&report).iter().filter_map(|figure| figure["at"]["plot"].as_str()).collect();
    let null_calls = ["latency", "percentiles", "rate", "under-load"];
    let others = ["pipeline", "overlap", "clients-bulk", "channels", "channel-bandwidth"];
    assert_eq!(plots, null_calls.into_iter().chain(others).collect());
    assert!(!named(&report, "shm", "null call in XDR").is_empty(), "{report}");
    for encoding in ["petasos", "petasos, XDR"] {
        assert!(plot(&report, "latency").iter().any(|found| found.1 == encoding), "{encoding}");
    }
    shown(&place, &["Latency by size", "Channels: latency by size", "Total bandwidth by clients"]);
}

#[test]
fn impossible_options_are_refused_before_a_measurement() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    let refused = place.run(&["bench", "null", "--report", "file"]).assert(1);
    refused.says("file").says("--report DIR");
    place.run(&["bench", "nul"]).assert(2).says("null");
    place.run(&["bench", "--time", "0"]).assert(2).says("at least 1ms");
    place.run(&["bench", "--rounds", "0"]).assert(2).says("--rounds");
    place.assert_clean();
}

#[test]
fn a_quick_bench() {
    let place = Place::new();
    let report =
        place.run(&["bench", "null", "--quick", "--time", "10ms", "--json"]).assert(0).json();
    let figures = report["figures"].as_array().unwrap();
    assert_eq!(report["rounds"], 3, "{report}");
    for transport in ["shm", "tcp"] {
        assert!(figures.iter().filter(|f| f["transport"] == transport).count() >= 6);
    }
    for figure in figures {
        assert!(figure["value"].as_f64().unwrap() > 0.0 && figure["limit"].is_object(), "{figure}");
        assert!(!figure["how"].as_str().unwrap().is_empty());
    }
    place.assert_clean();
}

#[test]
fn a_library_that_is_missing() {
    let place = Place::new();
    let without = [("PETASOS_UCX", "/nowhere/libucp.so")];
    place.run_with(&["bench", "--transport", "ucx"], &without).assert(6).says("libucx0");
}
