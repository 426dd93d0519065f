//! Any order of operations does to files and names what it does to a plain map.

use super::*;
use petasos_forward::{
    protocol::{Kind, RenameMode},
    storage::Storage,
};
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;

/// By path: a file's contents, or `None` for a directory.
type Model = BTreeMap<String, Option<Vec<u8>>>;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Put(String, Vec<u8>),
    Stage(String, Vec<u8>, bool),
    Create(String),
    Write(String, u16, Vec<u8>),
    Append(String, Vec<u8>),
    Resize(String, u16),
    MakeDir(String),
    Remove(String, bool),
    Rename(String, String, RenameMode),
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = || vec(prop_oneof![Just("a"), Just("b"), Just("c")], 1..4).prop_map(|at| at.join("/"));
    let data = || vec(any::<u8>(), 0..300);
    let how =
        prop_oneof![Just(RenameMode::Replace), Just(RenameMode::Keep), Just(RenameMode::Exchange)];
    let op = prop_oneof![
        2 => (at(), data()).prop_map(|(at, data)| Op::Put(at, data)),
        1 => (at(), data(), any::<bool>()).prop_map(|(at, data, keep)| Op::Stage(at, data, keep)),
        1 => at().prop_map(Op::Create),
        2 => (at(), 0..9000_u16, data()).prop_map(|(at, offset, data)| Op::Write(at, offset, data)),
        1 => (at(), data()).prop_map(|(at, data)| Op::Append(at, data)),
        1 => (at(), 0..9000_u16).prop_map(|(at, size)| Op::Resize(at, size)),
        3 => at().prop_map(Op::MakeDir),
        2 => (at(), any::<bool>()).prop_map(|(at, directory)| Op::Remove(at, directory)),
        3 => (at(), at(), how).prop_map(|(from, to, how)| Op::Rename(from, to, how)),
    ];
    vec(op, 1..60)
}

fn run(storage: &dyn Storage, op: &Op) -> FsResult<()> {
    let file = |at: &str, flags: OpenFlags, data: &[u8], offset: u16| {
        let file = storage.open(&path(at), flags, &mode(0o600))?;
        file.write_at(offset.into(), &[IoSlice::new(data)])?;
        file.sync(false)
    };
    match op {
        Op::Put(at, data) => storage.put(&path(at), data, &finish(data.len())).map(drop),
        Op::Stage(at, data, replace) => {
            storage.stage(&[0; 16])?.write_at(0, &[IoSlice::new(data)])?;
            let finish = Finish { replace: *replace, ..finish(data.len()) };
            let done = storage.publish(&[0; 16], &path(at), &finish).map(drop);
            storage.discard(&[0; 16]).and(done)
        }
        Op::Create(at) => file(at, NEW, b"", 0),
        Op::Write(at, offset, data) => file(at, BOTH, data, *offset),
        Op::Append(at, data) => file(at, WRITE.with(OpenFlags::APPEND), data, 0),
        Op::Resize(at, size) => {
            let set = SetAttr { size: Some((*size).into()), ..SetAttr::default() };
            storage.set_attr(&path(at), &set, true).map(drop)
        }
        Op::MakeDir(at) => storage.make_dir(&path(at), &mode(0o755)).map(drop),
        Op::Remove(at, directory) => storage.remove(&path(at), *directory),
        Op::Rename(from, to, how) => storage.rename(&path(from), &path(to), *how),
    }
}

/// The same in the map; whether it can be done.
fn expect(model: &mut Model, op: &Op) -> bool {
    let in_dir = |model: &Model, at: &str| match at.rsplit_once('/') {
        Some((parent, _)) => matches!(model.get(parent), Some(None)),
        None => true,
    };
    let below = |model: &Model, at: &str| {
        let prefix = format!("{at}/");
        model.keys().any(|name| name.starts_with(&prefix))
    };
    match op {
        Op::Put(at, data) => {
            let can = in_dir(model, at) && !matches!(model.get(at), Some(None));
            can && model.insert(at.clone(), Some(data.clone())).is_none_or(|_| true)
        }
        Op::Stage(at, data, replace) => {
            let there = model.get(at);
            let can = in_dir(model, at) && !matches!(there, Some(None));
            let can = can && (*replace || there.is_none());
            can && model.insert(at.clone(), Some(data.clone())).is_none_or(|_| true)
        }
        Op::Create(at) => {
            let can = in_dir(model, at) && !matches!(model.get(at), Some(None));
            can && model.entry(at.clone()).or_insert(Some(Vec::new())).is_some()
        }
        Op::Write(at, offset, data) => match model.get_mut(at) {
            Some(Some(file)) => {
                let (start, end) = ((*offset).into(), *offset as usize + data.len());
                if !data.is_empty() {
                    file.resize(file.len().max(end), 0);
                    file[start..end].copy_from_slice(data);
                }
                true
            }
            _ => false,
        },
        Op::Append(at, data) => match model.get_mut(at) {
            Some(Some(file)) => {
                file.extend_from_slice(data);
                true
            }
            _ => false,
        },
        Op::Resize(at, size) => match model.get_mut(at) {
            Some(Some(file)) => {
                file.resize((*size).into(), 0);
                true
            }
            _ => false,
        },
        Op::MakeDir(at) => {
            let can = in_dir(model, at) && !model.contains_key(at);
            can && model.insert(at.clone(), None).is_none()
        }
        Op::Remove(at, directory) => {
            let can = match model.get(at) {
                Some(None) => *directory && !below(model, at),
                Some(Some(_)) => !*directory,
                None => false,
            };
            can && model.remove(at).is_some()
        }
        Op::Rename(from, to, how) => rename(model, from, to, *how, in_dir(model, to), below),
    }
}

fn rename(
    model: &mut Model,
    from: &str,
    to: &str,
    how: RenameMode,
    in_dir: bool,
    below: impl Fn(&Model, &str) -> bool,
) -> bool {
    let (Some(source), target) = (model.get(from), model.get(to)) else { return false };
    let nested = to.starts_with(&format!("{from}/")) || from.starts_with(&format!("{to}/"));
    let can = in_dir
        && !nested
        && match (how, target) {
            (RenameMode::Keep, target) => target.is_none(),
            (RenameMode::Exchange, target) => target.is_some(),
            (RenameMode::Replace, _) if from == to => true,
            (RenameMode::Replace, None) => true,
            (RenameMode::Replace, Some(target)) => {
                source.is_some() == target.is_some() && (target.is_some() || !below(model, to))
            }
        };
    if can && from != to {
        let take = |model: &mut Model, at: &str| {
            let is_in = |name: &str| name == at || name.starts_with(&format!("{at}/"));
            let all: Vec<String> = model.keys().filter(|name| is_in(name)).cloned().collect();
            let rest = |name: &str| name[at.len()..].to_owned();
            all.iter().map(|name| (rest(name), model.remove(name).unwrap())).collect::<Vec<_>>()
        };
        let (source, target) = (take(model, from), take(model, to));
        model.extend(source.into_iter().map(|(rest, what)| (format!("{to}{rest}"), what)));
        if how == RenameMode::Exchange {
            model.extend(target.into_iter().map(|(rest, what)| (format!("{from}{rest}"), what)));
        }
    }
    can
}

/// All that the storage has.
fn contents(storage: &dyn Storage, at: &str, into: &mut Model) {
    for name in names(storage, at, 2) {
        let name = if at.is_empty() { name } else { format!("{at}/{name}") };
        let attr = storage.stat(&path(&name), false).unwrap();
        if attr.kind == Kind::Directory {
            into.insert(name.clone(), None);
            contents(storage, &name, into);
        } else {
            let data = get(storage, &name).unwrap();
            assert_eq!(attr.size, data.len() as u64);
            into.insert(name, Some(data));
        }
    }
}

pub(super) fn agrees(storage: &dyn Storage, ops: &[Op]) {
    let mut model = Model::new();
    for op in ops {
        let result = run(storage, op);
        if matches!(&result, Err(error) if error.errno() == Errno::OPNOTSUPP) {
            continue;
        }
        assert_eq!(expect(&mut model, op), result.is_ok(), "{op:?} gave {result:?}");
    }
    let mut there = Model::new();
    contents(storage, "", &mut there);
    assert_eq!(there, model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn local_files(ops in ops()) {
        let (_dir, local) = local();
        agrees(&local, &ops);
    }
}
