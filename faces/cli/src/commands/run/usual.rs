//! Options as other launchers call them. Those that mean the same here are taken; of the others it
//! is said what to write instead. An unknown option is no program, and a `:` between programs no
//! argument.

use crate::{
    cli::Cli,
    exit::{Code, Failure, Outcome},
    output::plain,
};
use clap::{Arg, Command, CommandFactory};
use std::ffi::{OsStr, OsString};

/// Those with one hyphen, which would be taken for letters of their own, by what they are here.
const SAME: [(&str, &str); 11] = [
    ("-np", "--ranks"),
    ("-host", "--hosts"),
    ("-hosts", "--hosts"),
    ("-hostfile", "--hostfile"),
    ("-machinefile", "--hostfile"),
    ("-f", "--hostfile"),
    ("-wdir", "--wdir"),
    ("-wd", "--wdir"),
    ("-oversubscribe", "--oversubscribe"),
    ("-timeout", "--timeout"),
    ("-l", "--label"),
];

/// Those that are given differently, and how.
const OTHERWISE: [(&[&str], &str); 14] = [
    (
        &["-ppn", "--ppn", "-perhost", "-npernode", "--npernode", "-N", "--ntasks-per-node"],
        "ranks of each host stand with its name: --hosts a:4,b:4, or slots=4 in a --hostfile",
    ),
    (&["-c", "--n", "--ntasks"], "it is -n N"),
    (&["-w", "--nodelist"], "it is --hosts a,b"),
    (&["-map-by", "--map-by", "-rank-by", "--rank-by"], "it is --map by-core or --map by-node"),
    (&["-bynode", "--bynode"], "it is --map by-node"),
    (&["-bind-to", "--bind-to", "--cpu-bind"], "it is --bind core or --bind none"),
    (&["-env", "--env", "-genv", "--genv"], "it is -x NAME=VALUE"),
    (&["-envlist", "-genvlist", "--genvlist"], "it is -x NAME, once for each"),
    (&["-genvall", "--genvall", "-envall"], "leave it out: the environment goes along"),
    (
        &["-mca", "--mca", "-gmca", "--gmca", "--prtemca", "--pmixmca"],
        "it is -x OMPI_MCA_NAME=VALUE (or PRTE_MCA_, PMIX_MCA_)",
    ),
    (&["-prepend-rank", "--prepend-rank", "-tag-output", "--tag-output"], "it is --label"),
    (&["--allow-run-as-root"], "leave it out: any user may run jobs"),
    (&["-launcher", "--launcher", "-launcher-exec", "-rsh"], "it is --remote-start COMMAND"),
    (&["--app", "-app", "-configfile", "--configfile"], SEVERAL),
];

/// What to do for a job of several programs.
const SEVERAL: &str =
    "a job is one program here: run a script that chooses by $PETASOS_RANK which one to be";

/// The words of a command line as this command takes them.
pub(crate) fn words(given: impl IntoIterator<Item = OsString>) -> Outcome<Vec<OsString>> {
    let mut words: Vec<OsString> = given.into_iter().collect();
    if words.get(1).is_none_or(|word| word != "run") {
        return Ok(words);
    }
    let cli = Cli::command();
    let Some(run) = cli.find_subcommand("run") else { return Ok(words) };
    let mut at = 2;
    while let Some(word) = words.get(at) {
        let Some(option) = word.to_str().filter(|word| word.starts_with('-') && *word != "-")
        else {
            // The program, and what is for it.
            one_program(&words[at..])?;
            break;
        };
        // Behind this all is the program's, whatever it looks like.
        if option == "--" {
            break;
        }
        if let Some((_, here)) = SAME.iter().find(|(there, _)| *there == option) {
            words[at] = here.into();
        }
        let Some(more) = values_of(run, &words[at])? else { break };
        at += 1 + more;
    }
    Ok(words)
}

/// How many words behind an option are its own; nothing if it is none, which is said where words
/// are understood.
fn values_of(run: &Command, word: &OsStr) -> Outcome<Option<usize>> {
    let Some(word) = word.to_str() else { return Ok(None) };
    let (name, given) = word.split_once('=').map_or((word, None), |(name, of)| (name, Some(of)));
    let takes = |option: &Arg| option.get_action().takes_values();
    if let Some(long) = name.strip_prefix("--") {
        let is_this = |option: &&Arg| {
            option.get_long() == Some(long)
                || option.get_all_aliases().is_some_and(|all| all.contains(&long))
        };
        if let Some(option) = run.get_arguments().find(is_this) {
            return Ok(Some(usize::from(takes(option) && given.is_none())));
        }
    } else if let Some(letter) = word.chars().nth(1) {
        let known = run.get_arguments().find(|option| option.get_short() == Some(letter));
        let is_alone = word.chars().count() == 2;
        if let Some(option) = known.filter(|option| is_alone || has_value(option, word)) {
            return Ok(Some(usize::from(takes(option) && is_alone)));
        }
    }
    match OTHERWISE.iter().find(|(there, _)| there.contains(&name)) {
        Some((_, how)) => {
            let text = format!("there is no option {} here", plain(name));
            Err(Failure::new(Code::Usage, text).advise(how))
        }
        None => Ok(None),
    }
}

/// Whether a word such as `-n4` or `-xNAME` is an option with its value: no other launcher's option
/// looks so.
fn has_value(option: &Arg, word: &str) -> bool {
    let value: String = word.chars().skip(2).collect();
    match option.get_short() {
        Some('n') => value.bytes().all(|byte| byte.is_ascii_digit()),
        _ => true,
    }
}

/// Several programs with a `:` between them, as other launchers take them, are not arguments of the
/// first.
fn one_program(program: &[OsString]) -> Outcome {
    match program.iter().rposition(|word| word == ":") {
        Some(at) if at > 0 && at + 1 < program.len() => {
            let text = "`:` stands between the programs of a job, and there is one here";
            let how = format!("{SEVERAL}; behind `--` a `:` is an argument as any other");
            Err(Failure::new(Code::Usage, text).advise(how))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command as Chosen;
    use clap::Parser;

    fn taken(line: &str) -> Result<crate::cli::Run, String> {
        let given = ["petasos", "run"].into_iter().chain(line.split(' ')).map(OsString::from);
        let words = words(given).map_err(|failure| failure.to_string())?;
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Chosen::Run(run) => Ok(run),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_others_call_differently_is_taken() {
        for line in [
            "-np 4 -x A=1 -x B -host a:2,b -wdir /tmp -oversubscribe p -np 2",
            "--np 4 -x A=1 -xB --host a:2,b --wd /tmp --oversubscribe p -np 2",
            "-n4 -x A=1 -x B -H a:2,b --wdir=/tmp --oversubscribe -- p -np 2",
        ] {
            let run = taken(line).unwrap();
            assert_eq!(run.hosts.ranks, Some(4), "{line}");
            assert_eq!(run.setup.export, ["A=1", "B"], "{line}");
            assert_eq!(run.hosts.hosts.as_deref(), Some("a:2,b"), "{line}");
            assert_eq!(run.setup.wdir.as_deref(), Some("/tmp".as_ref()), "{line}");
            assert!(run.hosts.oversubscribe, "{line}");
            assert_eq!(run.program, ["p", "-np", "2"], "{line}");
        }
    }

    #[test]
    fn of_what_is_not_taken_it_is_said_how_it_is_called() {
        for (line, how) in [
            ("-ppn 2 p", "--hosts a:4"),
            ("-n 2 --map-by=node p", "--map by-node"),
            ("--bind-to core p", "--bind core"),
            ("-genv A 1 p", "-x NAME=VALUE"),
            ("--mca btl self p", "OMPI_MCA_NAME"),
            ("--nothing-of-this-name p", "unexpected argument '--nothing-of-this-name'"),
            ("-z p", "unexpected argument '-z'"),
            ("-n 2 p : -n 1 q", "$PETASOS_RANK"),
        ] {
            let said = taken(line).unwrap_err();
            assert!(said.contains(how), "{line}: {said}");
        }
    }

    #[test]
    fn what_is_behind_the_program_is_the_programs() {
        for line in ["sh -c :", "-n 2 p -ppn 3 --map-by", "-- p : q", "--timeout 1s p --timeout 2s"]
        {
            let run = taken(line).unwrap();
            let behind = line.split(' ').rev().take(run.program.len()).collect::<Vec<_>>();
            assert!(run.program.iter().rev().eq(behind), "{line}: {:?}", run.program);
        }
        assert_eq!(taken("-n 2 -- -odd x").unwrap().program, ["-odd", "x"]);
    }
}
