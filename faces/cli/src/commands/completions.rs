//! `petasos completions`: what a shell needs to complete the command line.

use super::bench;
use crate::{
    cli::{Cli, Shell},
    exit::Outcome,
    output,
};
use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::{generate, shells};
use std::process;

/// Those of this program. `petasos-bench` knows its own options, and prints all where it is
/// installed.
pub(crate) fn run(shell: Shell) -> Outcome {
    match by_the_bench(shell) {
        Some(text) => output::print(text.trim_end()),
        None => print(shell, |bench| bench),
    }
}

/// As `petasos-bench completions SHELL` has them.
fn by_the_bench(shell: Shell) -> Option<String> {
    let word = shell.to_possible_value()?.get_name().to_owned();
    let mut command = process::Command::new(bench::program()?);
    let said = command.args(["completions", &word]).stdin(process::Stdio::null()).output().ok()?;
    said.status.success().then(|| String::from_utf8(said.stdout).ok())?
}

/// Those of this program, with what `bench` makes of its subcommand of that name.
#[doc(hidden)]
pub fn print(shell: Shell, bench: impl FnOnce(Command) -> Command) -> Outcome {
    let (mut command, mut text) = (Cli::command().mut_subcommand("bench", bench), Vec::new());
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, "petasos", &mut text),
        Shell::Zsh => generate(shells::Zsh, &mut command, "petasos", &mut text),
        Shell::Fish => generate(shells::Fish, &mut command, "petasos", &mut text),
    }
    output::print(String::from_utf8_lossy(&text).trim_end())
}
