//! A UCX whose binary interface is not known is not used: it is refused before anything of it is
//! called, but what says which one it is.

use petasos_testing::{Pretended, again, role};

#[test]
fn other_interfaces_are_refused() {
    const NAME: &str = "other_interfaces_are_refused";
    if role().is_some() {
        let found = petasos_ucx::find();
        return println!("said {}", found.unwrap_or_else(|error| format!("no: {error}")));
    }
    for (version, words) in [("2, *minor = 0", "UCX 2.0"), ("1, *minor = 12", "UCX 1.12")] {
        // Nothing else is there: what was not asked for its version first would be said to lack
        // functions.
        let source = format!(
            "void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
             {{ *major = {version}, *release = 0; }}"
        );
        let Some(library) = Pretended::of(&source) else { return };
        let path = library.path().to_str().unwrap();
        let said = again(NAME, "loads").env("PETASOS_UCX", path).start().line("said ");
        assert!(
            said.starts_with("no: ") && said.contains(words) && said.contains("1.13"),
            "{said}"
        );
    }
}
