//! The same commands over other transports than those that every machine has: only the URL changes.

mod common;

use common::{NETWORKS, Place, Serving};
use serde_json::Value;
use std::fs;

#[test]
fn quickstart() {
    for network in common::present(&NETWORKS) {
        let place = Place::new();
        let data: Vec<u8> = (0..5_000_000_u32).map(|at| (at * 7 + (at >> 13)) as u8).collect();
        fs::write(place.path("file"), &data).unwrap();
        let arguments = ["quickstart", "file", "--transport", network, "--out", "copy", "--json"];
        let brief = ["--time", "1ms"];
        let report = place.run(&[&arguments[..], &brief].concat()).assert(0).json();
        assert_eq!(report["verified"], true);
        assert_eq!(report["transports"][0], network);
        assert_eq!(fs::read(place.path("copy")).unwrap(), data, "{network}");
        place.assert_clean();
    }
}

/// A server, its clients, and the route that they take.
#[test]
fn pings() {
    for network in common::present(&NETWORKS) {
        let place = Place::new();
        let mut server = Serving::start(&place, &["--listen", &format!("{network}://*")], 1);
        let url = server.urls[0].clone();
        assert!(url.starts_with(&format!("{network}://")), "{url}");
        for size in ["0", "1000", "300000"] {
            let how = ["ping", &url, "-c", "3", "-i", "0ms", "--size", size, "--json"];
            let report = place.run(&how).assert(0).json();
            assert_eq!(report["answered"], 3, "{report}");
        }
        let report = place.run(&["info", &url, "--json"]).assert(0).json();
        assert_eq!(report["address"], *url, "{report}");
        assert_eq!(server.interrupt(), Some(0), "{network}");
        place.assert_clean();
    }
}

/// A channel of a report.
fn channel<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["channels"].as_array().unwrap();
    all.iter().find(|channel| channel["name"] == name).unwrap_or_else(|| panic!("{report}"))
}

/// By which channels a peer is reached, as they are by default, and as a file of tuning says.
#[test]
fn channels_to_a_peer() {
    for network in common::present(&["ofi+tcp", "ucx+posix"]) {
        let place = Place::new();
        let mut server = Serving::start(&place, &["--listen", &format!("{network}://*")], 1);
        let url = server.urls[0].clone();
        let info = |tuning: &str, how: &[&str]| {
            let file = place.path("tuning");
            fs::write(&file, tuning).unwrap();
            let tuned = [("PETASOS_TUNING", file.to_str().unwrap())];
            place.run_with(&[&["info", &url], how].concat(), &tuned).assert(0)
        };
        let report = info("", &["--json"]).json();
        let packets = channel(&report, "short packets");
        assert_eq!(
            (&packets["state"], &packets["messages"][0]["from_bytes"]),
            (&"open".into(), &0.into())
        );
        assert_eq!(packets["credit"]["unit"], "packets", "{report}");
        assert!(
            packets["credit"]["free"].as_u64() <= packets["credit"]["all"].as_u64(),
            "{report}"
        );
        assert_eq!(channel(&report, "exclusive FIFO")["state"], "never", "{report}");
        let fetched = &channel(&report, "rendezvous")["messages"][0];
        assert!(fetched["from_bytes"].as_u64() > Some(16_000), "{report}");
        assert!(fetched["to_bytes"].is_null(), "{report}");

        let tuning = format!(
            "{network}.channel.mp = 10000\n{network}.channel.exclusive = 4104\n\
             {network}.channel.exclusive_from = 1032\n"
        );
        let report = info(&tuning, &["--json"]).json();
        let exclusive = channel(&report, "exclusive FIFO");
        assert_eq!(exclusive["state"], "closed", "{report}");
        assert_eq!(exclusive["messages"][0]["from_bytes"], 1024, "{report}");
        assert_eq!(exclusive["messages"][0]["to_bytes"], 4096, "{report}");
        let text = info(&tuning, &[]).out;
        for said in ["short packets", "1 KiB to 4 KiB", "up to 9992 B", "from 9993 B", " packets"] {
            assert!(text.contains(said), "`{said}` is not in {text}");
        }
        assert_eq!(server.interrupt(), Some(0), "{network}");
        fs::remove_file(place.path("tuning")).unwrap();
        place.assert_clean();
    }
    // Others have one channel, of which nothing is to be said.
    let place = Place::new();
    let server = Serving::start(&place, &["--listen", "shm://*"], 1);
    let report = place.run(&["info", &server.urls[0], "--json"]).assert(0).json();
    assert_eq!(report["channels"].as_array().map(Vec::len), Some(0), "{report}");
    assert!(!place.run(&["info", &server.urls[0]]).assert(0).out.contains("credit"));
}

/// The channels of a network are compared, and what was found is used by the next program.
#[test]
fn tuning_of_channels() {
    for network in common::present(&["ofi+tcp", "ucx+posix"]) {
        let place = Place::new();
        let file = place.path("tuning");
        let out = file.to_str().unwrap();
        fs::write(&file, "tcp.lend_above = 2048\n").unwrap();
        let tune = ["tune", "--quick", "--transport", network, "--out", out, "--json"];
        let report = place.run(&tune).assert(0).json();
        let found = &report["transports"][0];
        assert_eq!(found["transport"], network, "{report}");
        let channels = found["channels"].as_array().unwrap();
        let positive = |name: &str| channels.iter().all(|at| at[name].as_f64().unwrap() > 0.0);
        assert!(channels.len() >= 3, "{report}");
        assert!(["bytes", "mp", "exclusive", "shared"].into_iter().all(positive), "{report}");
        let written = fs::read_to_string(&file).unwrap();
        assert!(written.starts_with("tcp.lend_above = 2048\n"), "{written}");
        let exclusive = match found["choice"]["exclusive"].as_array() {
            None => format!("{network}.channel.exclusive = never\n"),
            Some(_) => format!("{network}.channel.exclusive_from = "),
        };
        assert!(written.contains(&exclusive), "{written}");
        assert!(written.contains(&format!("{network}.channel.mp = ")), "{written}");
        let mut server = Serving::start(&place, &["--listen", &format!("{network}://*")], 1);
        let tuned = [("PETASOS_TUNING", out)];
        let info = ["info", &server.urls[0], "--json"];
        let report = place.run_with(&info, &tuned).assert(0).json();
        let state = &channel(&report, "exclusive FIFO")["state"];
        assert_eq!(found["choice"]["exclusive"].is_null(), state == "never", "{written}{report}");
        assert_eq!(server.interrupt(), Some(0), "{network}");
        fs::remove_file(&file).unwrap();
        place.assert_clean();
    }
}
