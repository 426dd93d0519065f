//! `petasos forward mount`: an export as a file system.
//!
//! In the background the mount is a process of its own: this executable, started again, which says
//! when it is done, and then has nothing any more of the process that started it: no terminal, no
//! descriptor, no working directory. Signals end it there.

use super::{guard, mount_ask};
use crate::{
    cli::forward::{CacheMode, Mount},
    client,
    exit::{Code, Failure, Outcome, as_json},
    interrupt, output,
};
use petasos_forward::{
    descriptors,
    mount::{Cache, MountError, MountOptions, Mounted, Unmounted, recover_by},
};
use serde_json::json;
use std::{
    env,
    fs::File,
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// Set for the process in the background: it says this word when it has mounted.
const BACKGROUND: &str = "PETASOS_MOUNT_BACKGROUND";
const DONE: &str = "mounted";

/// How often to look whether it was unmounted, and whether a signal came.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) fn run(options: &Mount) -> Outcome {
    let failed = |error| Failure::file("mounting on", &options.directory, &error);
    recover_by(&options.directory, mount_ask::is_dead).map_err(failed)?;
    let directory = options.directory.canonicalize().map_err(failed)?;
    let background = env::var_os(BACKGROUND).is_some();
    if !options.foreground && !background {
        return in_background(options);
    }
    let log = options.log_file.as_deref().map(log_file).transpose()?;
    interrupt::be_polite();
    if background {
        // The terminal's end, and its Ctrl-C, are not meant for it.
        let _ = rustix::process::setsid();
    }
    descriptors::raise();
    let mut mounted = mount(options, directory.clone())?;
    let location = &options.location;
    let id = mounted.id().ok_or_else(|| ErrorKind::NotFound.into());
    if let Err(error) = id.and_then(|id| guard::start(&directory, id)) {
        output::note(&format!("the mount has no guard: {error}"));
    }
    if let Some(log) = &log {
        rustix::stdio::dup2_stderr(log).map_err(Failure::system("beginning the log"))?;
    }
    match background {
        true => {
            // The process that waits may be gone.
            drop(writeln!(std::io::stdout(), "{DONE}"));
            leave(log.is_some()).map_err(Failure::system("leaving the terminal"))?;
        }
        false if as_json() => {
            let on = directory.display().to_string();
            output::print_json_line(&json!({ "mounted": location.to_string(), "on": on }))?;
        }
        false => output::print(&format!("{location} is mounted on {}", directory.display()))?,
    }
    while !mounted.wait(Duration::ZERO) {
        if !interrupt::wait(Some(LOOK)) {
            continue;
        }
        if mounted.unmount().map_err(failure)? == Unmounted::Detached {
            output::note(&format!(
                "{} is in use: it has no name any more, and is served until the last one leaves it; \
                 another signal ends it at once",
                directory.display()
            ));
            while !mounted.wait(LOOK) {}
        }
    }
    Ok(())
}

fn mount(options: &Mount, directory: PathBuf) -> Outcome<Mounted> {
    let location = &options.location;
    if location.address.scheme() == "self" {
        let text = format!("{location}: self:// connects to no other process");
        return Err(Failure::new(Code::Usage, text).advise("the URL that the server prints"));
    }
    let endpoint = client::endpoint(petasos::open, &location.address, options.secret.as_deref())?;
    let mut mounting = MountOptions::default();
    mounting.path = location.path.clone();
    mounting.source = location.to_string();
    mounting.read_only = options.read_only;
    mounting.allow_other = options.allow_other;
    mounting.cache = match options.cache {
        CacheMode::Close => Cache::Close,
        CacheMode::None => Cache::None,
    };
    mounting.attr_timeout = options.attr_timeout;
    mounting.negative_timeout = options.negative_timeout;
    mounting.timeout = options.timeout;
    mounting.write_behind = options.write_behind as usize;
    mounting.read_ahead = options.read_ahead as usize;
    for option in options.option.iter().flat_map(|list| list.split(',')) {
        if !option.is_empty() {
            mounting.system_option(option).map_err(failure)?;
        }
    }
    Mounted::new(endpoint, &location.address, &directory, mounting).map_err(failure)
}

fn failure(error: MountError) -> Failure {
    match error {
        MountError::Remote(error) => error.into(),
        MountError::Option(_) => Failure::new(Code::Usage, error)
            .advise("ro, noexec, nosuid, nodev, noatime, sync, dirsync, allow_other, fsname=NAME"),
        MountError::System { .. } => Failure::new(Code::Failed, error)
            .advise("/dev/fuse must be there; without root's rights, also fusermount3 (fuse3)"),
        error => Failure::new(Code::Failed, error),
    }
}

/// Closes what the process in the background has of the one that started it, beyond the standard
/// streams. To be called before anything is opened.
pub(crate) fn let_go() {
    if env::var_os(BACKGROUND).is_none() {
        return;
    }
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        // That of the list itself is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Leaves the standard streams and the working directory: a process that waits for their end, or
/// wants to unmount what they are on, is not kept by a mount. Standard error stays where it is a
/// log.
fn leave(logs: bool) -> std::io::Result<()> {
    env::set_current_dir("/")?;
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    if !logs {
        rustix::stdio::dup2_stderr(&nowhere)?;
    }
    Ok(())
}

/// Opens the log, where the user says: also when the working directory is another one later.
fn log_file(path: &Path) -> Outcome<File> {
    let opened = File::options().append(true).create(true).open(path);
    opened.map_err(|error| Failure::file("opening the log", path, &error))
}

/// Starts the process that mounts, and waits until it has.
fn in_background(options: &Mount) -> Outcome {
    let program = env::current_exe().map_err(Failure::system("starting the mount"))?;
    let mut command = Command::new(program);
    let arguments = crate::words()?;
    command.arg0("petasos").args(crate::before()).args(arguments.into_iter().skip(1));
    command.env(BACKGROUND, "1");
    if options.log_file.is_some() {
        // What is a terminal now is not what is written to then.
        command.env("NO_COLOR", "1");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(Failure::system("starting the mount"))?;
    let said = child.stdout.take().expect("a piped output");
    let mut line = String::new();
    let _ = BufReader::new(said).read_line(&mut line);
    if line.trim() == DONE {
        return Ok(());
    }
    // It has said on standard error what was wrong.
    let status = child.wait().map_err(Failure::system("starting the mount"))?;
    std::process::exit(status.code().unwrap_or(Code::Failed as i32));
}
