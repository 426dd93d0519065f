//! `petasos bench`: becomes the program `petasos-bench`, which is built and installed by itself.

use crate::{
    cli::{Bench, Common},
    exit::{Code, Failure, Outcome},
};
use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

/// The program.
const PROGRAM: &str = "petasos-bench";

/// How it is got.
const HOW: &str = "from the source tree, `cargo install --path tools/bench`, or `cargo build --release -p \
                   petasos-bench`, which puts it beside `petasos` there";

/// Where the program is: beside this one, else where `PATH` says.
pub(super) fn program() -> Option<PathBuf> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    let places = beside.into_iter().chain(env::split_paths(&path));
    places.map(|place| place.join(PROGRAM)).find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Becomes the program: signals, the terminal and the exit code are its own then. Comes back only
/// if that failed.
pub(crate) fn run(common: &Common, options: &Bench) -> Outcome {
    // Behind `bench` it is one of the words that are handed on.
    if common.json || options.words.iter().any(|word| word == "--json") {
        crate::exit::say_as_json();
    }
    let Some(program) = program() else {
        let text = format!(
            "`{PROGRAM}`, the program that measures, is neither beside this one nor in PATH"
        );
        return Err(Failure::new(Code::Unavailable, text).advise(HOW));
    };
    let mut command = Command::new(&program);
    command.args(&options.words).args(words(common));
    let error = command.exec();
    Err(Failure::new(Code::Failed, format!("starting {}: {error}", program.display())))
}

/// What all commands take, as words: they may stand anywhere.
fn words(common: &Common) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    words.extend(common.json.then(|| "--json".into()));
    words.extend((0..common.verbose).map(|_| "-v".into()));
    words.extend(common.log.iter().map(|filter| format!("--log={filter}").into()));
    words
}
