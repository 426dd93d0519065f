//! A libfabric whose binary interface is not known is not used: it is refused before anything of it
//! is called, but what says which one it is.

use petasos_testing::{Pretended, again, role};

/// What a library says that calls itself this version, and ends the process if anything else of it
/// is called.
fn said_of(test: &str, version: &str) -> Option<String> {
    let source = format!(
        "#include <stdlib.h>
         unsigned fi_version(void) {{ return {version}; }}
         int fi_getinfo(void) {{ abort(); }}
         void fi_freeinfo(void) {{ abort(); }}
         void *fi_dupinfo(void) {{ abort(); }}
         int fi_fabric(void) {{ abort(); }}
         char *fi_strerror(void) {{ abort(); }}"
    );
    let library = Pretended::of(&source)?;
    let path = library.path().to_str().unwrap();
    Some(again(test, "loads").env("PETASOS_LIBFABRIC", path).start().line("said "))
}

#[test]
fn other_interfaces_are_refused() {
    const NAME: &str = "other_interfaces_are_refused";
    if role().is_some() {
        // Opening an endpoint, and listing what there is, give the same error.
        let found = petasos_ofi::find();
        let place = petasos_fabric::Address::parse("ofi+tcp://127.0.0.1:0").unwrap();
        let opened = petasos_ofi::open(&place, petasos_ofi::Config::default());
        if let (Err(found), Err(opened)) = (&found, &opened) {
            assert_eq!(found.to_string(), opened.to_string());
            assert_eq!(petasos_ofi::probe(), [found.to_string()]);
        }
        return println!("said {}", found.unwrap_or_else(|error| format!("no: {error}")));
    }
    for (version, words) in [("3 << 16", "libfabric 3.0"), ("1 << 16 | 16", "libfabric 1.16")] {
        let Some(said) = said_of(NAME, version) else { return };
        assert!(
            said.starts_with("no: ") && said.contains(words) && said.contains("1.17"),
            "{said}"
        );
    }
}
