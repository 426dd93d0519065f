//! `rm`, `mkdir` and `mv`.

use super::{inspect::each, out::name_json, session};
use crate::{
    cli::forward::{Mkdir, Mv, Rm},
    exit::{Code, Failure, Outcome, as_json},
    output,
};
use petasos_forward::{
    RelPath,
    client::{Remote, RemoteError},
    protocol::{Creation, Kind, RenameMode},
    transfer::remove_tree,
};
use rustix::io::Errno;
use serde_json::{Value, json};

/// Calls on the way at a time.
const PARALLEL: usize = 64;

/// Says what was done to programs; people see it by the exit code.
fn done(what: impl FnOnce() -> Value) -> Outcome {
    if as_json() { output::print_json_line(&what()) } else { Ok(()) }
}

pub(super) fn rm(options: &Rm) -> Outcome {
    each("rm", &options.locations, &options.access, async |remote, location| {
        if location.path.is_root() {
            let text = format!("{}: this is the root of the export", location.address);
            return Err(Failure::new(Code::Usage, text).advise("name what is to go: URL/PATH"));
        }
        let attr = match remote.stat(&location.path, false).await {
            Err(error) if options.force && error.errno() == Errno::NOENT => return Ok(()),
            attr => attr?,
        };
        match (attr.kind, options.recursive) {
            (Kind::Directory, false) => {
                let text = format!("{location} is a directory");
                let failure = Failure::new(Code::Failed, text);
                return Err(failure.advise("--recursive, for all that is in it"));
            }
            (Kind::Directory, true) => remove_tree(remote, &location.path, PARALLEL).await?,
            _ => remote.remove_file(&location.path).await?,
        }
        done(|| json!({ "removed": name_json(location.path.as_bytes()) }))
    })
}

pub(super) fn mkdir(options: &Mkdir) -> Outcome {
    each("mkdir", &options.locations, &options.access, async |remote, location| {
        let creation = Creation { mode: options.mode, owner: None };
        if options.parents {
            make_dirs(remote, &location.path, creation).await?;
        } else {
            remote.make_dir(&location.path, creation).await?;
        }
        done(|| json!({ "made": name_json(location.path.as_bytes()) }))
    })
}

/// Makes a directory, and those that lead there. It is well if there is one.
async fn make_dirs(remote: &Remote, path: &RelPath, creation: Creation) -> Result<(), RemoteError> {
    let mut missing = vec![path.clone()];
    while let Some(path) = missing.last() {
        match remote.make_dir(path, creation).await {
            Ok(_) => {}
            Err(error) if error.errno() == Errno::NOENT && missing.len() <= RelPath::MAX => {
                match path.split() {
                    Some((parent, _)) if !parent.is_root() => {
                        missing.push(parent);
                        continue;
                    }
                    _ => return Err(error),
                }
            }
            Err(error) if error.errno() == Errno::EXIST => {
                if remote.stat(path, true).await?.kind != Kind::Directory {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        missing.pop();
    }
    Ok(())
}

pub(super) fn mv(options: &Mv) -> Outcome {
    let (from, to) = (&options.from, &options.to);
    if from.address != to.address {
        let text = format!("{} and {} are two servers", from.address, to.address);
        return Err(Failure::new(Code::Usage, text).advise("get from the one, put to the other"));
    }
    let mode = match (options.no_replace, options.exchange) {
        (true, _) => RenameMode::Keep,
        (_, true) => RenameMode::Exchange,
        _ => RenameMode::Replace,
    };
    session::with("mv", &from.address, &options.access, async |remote| {
        let mut target = to.path.clone();
        if mode != RenameMode::Exchange
            && let Ok(attr) = remote.stat(&to.path, true).await
            && attr.kind == Kind::Directory
            && let Some((_, name)) = from.path.split()
        {
            target = to
                .path
                .join(name.as_encoded_bytes())
                .map_err(|e| Failure::new(Code::Usage, format!("{}: {e}", to.path)))?;
        }
        remote.rename(&from.path, &target, mode).await?;
        done(|| {
            let [from, to] = [&from.path, &target].map(|path| name_json(path.as_bytes()));
            json!({ "moved": from, "to": to })
        })
    })
}
