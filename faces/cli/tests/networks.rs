//! The same commands over other transports than those that every machine has: only the URL changes.

mod common;

use common::{NETWORKS, Place, Serving};
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
