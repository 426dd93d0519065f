//! What the compiler says where an interface is used wrongly: in the words of the library.

use std::{
    cmp::Reverse,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The libraries of this crate that cargo built beside this test, the newest first: there may be
/// some with other features, or of another compiler.
fn libraries() -> Vec<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let mut found: Vec<_> = fs::read_dir(own.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap_or_default();
            name.starts_with("libpetasos-") && name.ends_with(".rlib")
        })
        .collect();
    found.sort_by_key(|path| Reverse(fs::metadata(path).unwrap().modified().unwrap()));
    found
}

/// Has the compiler look at a program that knows this library.
fn compile(library: &Path, program: &str) -> Output {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("program.rs");
    fs::write(&source, program).unwrap();
    // Where what the macros write finds the library.
    let manifest = "[package]\nname = \"program\"\n[dependencies]\npetasos = \"*\"\n";
    fs::write(place.path().join("Cargo.toml"), manifest).unwrap();
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .env("CARGO_MANIFEST_DIR", place.path())
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "-o"])
        .arg(place.path().join("program.rmeta"))
        .arg("--extern")
        .arg(format!("petasos={}", library.display()))
        .arg("-L")
        .arg(format!("dependency={}", library.parent().unwrap().display()))
        .arg(&source)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const GOOD: &str = "
use petasos::{CallError, Region, Wire, service};

#[derive(Wire)]
pub struct Plain(u64);

#[service]
pub trait Store {
    async fn put(&self, it: Plain) -> Vec<Plain>;
    async fn read(&self, #[bulk(push)] into: Region) -> u64;
}

pub async fn read(store: &StoreClient) -> Result<u64, CallError> {
    let into = Region::zeroed(10);
    store.read(&into).await
}
";

#[test]
fn what_is_wrong_is_said_in_plain_words() {
    let libraries = libraries();
    let tried: Vec<_> = libraries.iter().map(|library| compile(library, GOOD)).collect();
    let Some(at) = tried.iter().position(|tried| tried.status.success()) else {
        let last = tried.first().map(said);
        panic!("none of {libraries:?} can be used: {}", last.unwrap_or_default());
    };
    let wrong = [
        // A type that does not travel, as an argument and in a result.
        (
            "#[derive(Wire)]\n",
            "",
            ["`Plain` cannot travel: it is not `Wire`", "put `#[derive(Wire)]` on a structure"],
        ),
        (
            "it: Plain)",
            "it: std::time::Instant)",
            ["`Instant` cannot travel: it is not `Wire`", "goes as one of these"],
        ),
        // What is pushed would be lost.
        (
            "read(&into)",
            "read(vec![0; 10])",
            [
                "`Vec<{integer}>` is no memory that the caller can read after the call",
                "let into = Region::zeroed(LEN);",
            ],
        ),
        (
            "read(&into)",
            "read(into)",
            ["`Region` is no memory that the caller can read after", "consider borrowing here"],
        ),
    ];
    for (right, instead, words) in wrong {
        assert_eq!(GOOD.matches(right).count(), 1, "{right}");
        let output = compile(&libraries[at], &GOOD.replace(right, instead));
        let text = said(&output);
        assert!(!output.status.success(), "{instead} is taken");
        for words in words {
            assert!(text.contains(words), "`{words}` is not said:\n{text}");
        }
        // By where the type stands, and by few others of what the macro wrote.
        let errors = text.matches("error[").count();
        assert!(errors <= 4, "{errors} errors:\n{text}");
    }
}
