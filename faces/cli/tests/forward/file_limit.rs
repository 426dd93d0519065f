//! A limit for the length of files, which the system enforces by ending the process.

use crate::{common::Place, descriptors::limited, export::Export};
use std::fs;

/// What one client asks for ends no server, and a long file no client without a word.
#[test]
fn files_beyond_the_limit_are_refused() {
    let place = Place::new();
    fs::create_dir(place.path("exp")).unwrap();
    fs::write(place.path("short"), "short").unwrap();
    fs::write(place.path("long"), vec![7; 100 << 20]).unwrap();
    let serve = ["forward", "serve", "exp", "--listen", "tcp://127.0.0.1:0", "--open"];
    // Memory of the transport is of the same kind, and has to fit: 64 MiB, by units of 512 bytes.
    let export = Export::of(limited(&place.command(&serve), "-f 131072"), place.path("exp"));
    export.run(&place, &["put", "long", "@/long"]).assert(1).says("File too large");
    assert_eq!(export.staged(), 0, "nothing is left of it");
    export.run(&place, &["put", "short", "@/short"]).assert(0);
    assert_eq!(fs::read(place.path("exp/short")).unwrap(), b"short");
    drop(export);

    fs::rename(place.path("long"), place.path("exp/long")).unwrap();
    let export = Export::start(&place, "tcp", &[]);
    let get = place.command(&["forward", "get", &format!("{}/long", export.url), "here"]);
    let output = limited(&get, "-f 131072").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("File too large"), "{output:?}");
    assert!(!place.path("here").exists());
    place.assert_clean();
}
