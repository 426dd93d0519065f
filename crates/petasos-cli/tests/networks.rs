//! The same commands over other transports than those that every machine has: only the URL changes.

mod common;

use common::{NETWORKS, Place};
use std::fs;

/// What `bench` measures of a transport within seconds.
const PARTS: [&str; 4] = ["null", "echo", "connect", "portals"];

#[test]
fn quickstart() {
    for network in common::present(&NETWORKS) {
        let place = Place::new();
        let data: Vec<u8> = (0..5_000_000_u32).map(|at| (at * 7 + (at >> 13)) as u8).collect();
        fs::write(place.path("file"), &data).unwrap();
        let arguments = ["quickstart", "file", "--transport", network, "--out", "copy", "--json"];
        let report = place.run(&arguments).assert(0).json();
        assert_eq!(report["verified"], true);
        assert_eq!(report["transports"][0], network);
        assert_eq!(fs::read(place.path("copy")).unwrap(), data, "{network}");
        place.assert_clean();
    }
}

#[test]
fn benches() {
    for network in common::present(&NETWORKS) {
        let place = Place::new();
        let brief = ["--transport", network, "--quick", "--rounds", "1", "--time", "1ms", "--json"];
        let report = place.run(&[&["bench"], &PARTS[..], &brief].concat()).assert(0).json();
        let figures = report["figures"].as_array().unwrap();
        for (what, least) in [
            ("null call, spinning", 1),
            ("call rate, blocking", 2),
            ("echo, 64 B", 1),
            ("first call of a new peer", 1),
            ("put, ", 1),
        ] {
            let named = |figure: &&serde_json::Value| {
                figure["transport"] == network
                    && figure["what"].as_str().is_some_and(|name| name.contains(what))
            };
            let found = figures.iter().filter(named).count();
            assert!(found >= least, "{network}: {what}: {found} of {report}");
        }
        place.assert_clean();
    }
}

#[test]
fn who_does_not_exist() {
    let place = Place::new();
    for network in common::present(&["ofi+nothing", "ucx+nothing"]) {
        let ran = place.run(&["bench", "null", "--quick", "--transport", network]);
        assert_ne!(ran.code, Some(0));
        ran.says(network);
    }
    let wrong = ["bench", "null", "--quick", "--transport", "shm+x"];
    assert_ne!(place.run(&wrong).code, Some(0));
}
