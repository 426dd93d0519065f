//! Every piece of Rust in the README and the guides is compiled by a test, and run where it can be:
//! as a test of documentation, or because it stands in a test.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What else stands in them: sessions on a terminal, pictures, and programs in other languages, which
/// the tests of their packages compile or run.
const OTHERS: [&str; 8] =
    ["text", "sh", "console", "toml", "c", "python", "python numpy", "python job"];
/// What is quoted instead of compiled as documentation, and from where. That is a test that passes.
const QUOTED: (&str, &str) = ("docs/writing-a-transport.md", "tools/guide/tests/conformance.rs");
/// The first piece of the guide to jobs is a program as well, which a test of the command runs.
const RUN: (&str, &str) = ("docs/launch.md", "faces/petasos/examples/neighbours.rs");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files under `folder` whose name ends so.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_str().unwrap().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The pages for readers, by their names from the root on.
fn pages() -> Vec<String> {
    let guides = files(&root().join("docs"), ".md").into_iter();
    let guides = guides.map(|path| path.strip_prefix(root()).unwrap().display().to_string());
    ["README.md".to_owned()].into_iter().chain(guides).collect()
}

fn sources() -> Vec<PathBuf> {
    let roles = ["core", "transports", "protocols", "services", "faces", "tools"];
    let crates = roles.iter().flat_map(|role| fs::read_dir(root().join(role)).unwrap());
    let crates = crates.map(|entry| entry.unwrap().path().join("src")).filter(|src| src.is_dir());
    crates.flat_map(|folder| files(&folder, ".rs")).collect()
}

/// The pieces of a page between fences, each with what is said of it, such as `rust,no_run`.
fn pieces(text: &str) -> Vec<(&str, String)> {
    let (mut pieces, mut open) = (Vec::new(), None);
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(said), None) => open = Some((said, String::new())),
            (Some(_), Some(_)) => pieces.extend(open.take()),
            (None, Some((_, piece))) => {
                piece.push_str(line);
                piece.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence that does not end");
    pieces
}

/// The first piece of Rust of a page.
fn first(text: &str) -> String {
    let rust = pieces(text).into_iter().find(|(said, _)| said.starts_with("rust"));
    rust.expect("there is one").1
}

/// Whether a fence with this behind it begins a piece that is not compiled: `ignore`, also for some
/// machines only.
fn is_left_out(said: &str) -> bool {
    said.split([',', ' ']).any(|word| word.starts_with("ignore"))
}

#[test]
fn all_rust_of_the_pages_is_compiled() {
    let sources: Vec<String> =
        sources().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut programs = 0;
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let mut rust = Vec::new();
        for (said, piece) in pieces(&text) {
            match said {
                "rust" | "rust,no_run" => rust.push(piece),
                said => assert!(OTHERS.contains(&said), "{page}: a piece of `{said}`"),
            }
        }
        programs += rust.len();
        if page == QUOTED.0 {
            let test = fs::read_to_string(root().join(QUOTED.1)).unwrap();
            for piece in rust {
                assert!(test.contains(&piece), "{page}: not in {}:\n{piece}", QUOTED.1);
            }
        } else if !rust.is_empty() {
            // When documentation is tested, and by no other condition but a feature that is a
            // default.
            let included = ["#[cfg(doctest)]", r#"#[cfg(all(doctest, feature = "job"))]"#]
                .map(|cfg| format!("\n{cfg}\n#[doc = include_str!(\"../../../{page}\")]\nstruct "));
            let compiled =
                sources.iter().any(|source| included.iter().any(|lines| source.contains(lines)));
            assert!(compiled, "no crate has {page} as documentation that is tested");
        }
        if page == RUN.0 {
            let program = fs::read_to_string(root().join(RUN.1)).unwrap();
            assert!(program.ends_with(&format!("\n{}", first(&text))), "{page}: not {}", RUN.1);
        }
    }
    assert!(programs >= 7, "{programs} programs: not all pieces were found");
}

#[test]
fn no_documentation_is_left_out() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines() {
            let comment = line.trim_start();
            let comment = ["///", "//!"].iter().find_map(|mark| comment.strip_prefix(mark));
            let fence = comment.and_then(|text| text.trim_start().strip_prefix("```"));
            let said = fence.unwrap_or_default().trim_start_matches('`');
            assert!(!is_left_out(said), "{}: {line}", path.display());
        }
    }
    for said in ["ignore", "rust,ignore", "ignore-x86_64", "rust, ignore-windows,no_run"] {
        assert!(is_left_out(said), "{said}");
    }
    assert!(!is_left_out("rust,no_run") && !is_left_out("compile_fail,E0277"));
}
