//! The `petasos` command.
#![forbid(unsafe_code)]

mod limits;

use std::env;
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let subcommand = env::args().nth(1);
    let outcome = match subcommand.as_deref() {
        Some(limits::HELPER_SUBCOMMAND) => limits::run_helper().map_err(Into::into),
        Some("limits") => print_limits(),
        _ => Err("usage: petasos limits".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("petasos: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints this machine's limits, a JSON object a line.
fn print_limits() -> Result<(), Box<dyn Error>> {
    let plan = limits::Plan::default();
    for (_, measure) in limits::ROUND_TRIPS {
        println!("{}", serde_json::to_string(&measure(&plan)?)?);
    }
    for (_, measure) in limits::BULKS {
        let sizes = [1 << 20, 16 << 20, 256 << 20];
        println!("{}", serde_json::to_string(&measure(&plan, &sizes)?)?);
    }
    Ok(())
}
