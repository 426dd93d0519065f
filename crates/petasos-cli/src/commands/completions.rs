//! `petasos completions`: what a shell needs to complete the command line.

use crate::{
    cli::{Cli, Shell},
    exit::Outcome,
    output,
};
use clap::CommandFactory;
use clap_complete::{generate, shells};

pub(crate) fn run(shell: Shell) -> Outcome {
    let (mut command, mut text) = (Cli::command(), Vec::new());
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, "petasos", &mut text),
        Shell::Zsh => generate(shells::Zsh, &mut command, "petasos", &mut text),
        Shell::Fish => generate(shells::Fish, &mut command, "petasos", &mut text),
    }
    output::print(String::from_utf8_lossy(&text).trim_end())
}
