//! The `petasos` command: see [`petasos_cli`].

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    petasos_cli::main(None)
}
