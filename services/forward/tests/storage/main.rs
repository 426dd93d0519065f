//! Storages, by one suite of checks for all of them, and by what each must do besides.

mod escape;
mod local;
mod model;
#[cfg(feature = "object-store")]
mod objects;
mod suite;

use petasos_forward::{
    FsResult, RelPath,
    protocol::{Creation, Finish, OpenFlags, SetAttr},
    storage::{Local, Storage},
};
use rustix::io::Errno;
use std::io::IoSlice;
use tempfile::TempDir;

const READ: OpenFlags = OpenFlags::READ;
const WRITE: OpenFlags = OpenFlags::WRITE;
const BOTH: OpenFlags = READ.with(WRITE);
const NEW: OpenFlags = BOTH.with(OpenFlags::CREATE);

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect(text)
}

fn mode(mode: u32) -> Creation {
    Creation { mode, owner: None }
}

fn finish(size: usize) -> Finish {
    let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    Finish { size: size as u64, set, replace: true, ..Finish::default() }
}

#[track_caller]
fn refused<T>(result: FsResult<T>, errno: Errno) {
    match result {
        Ok(_) => panic!("was done, in place of {errno}"),
        Err(error) => assert_eq!(error.errno(), errno, "{error}"),
    }
}

fn put(storage: &dyn Storage, at: &str, data: &[u8]) {
    storage.put(&path(at), data, &finish(data.len())).expect(at);
}

fn get(storage: &dyn Storage, at: &str) -> FsResult<Vec<u8>> {
    let file = storage.open(&path(at), READ, &Creation::default())?;
    let mut data = vec![0; file.attr()?.size as usize + 1];
    let read = file.read_at(0, &mut data)?;
    data.truncate(read);
    Ok(data)
}

fn write(storage: &dyn Storage, at: &str, offset: u64, data: &[u8]) -> FsResult<u64> {
    let file = storage.open(&path(at), WRITE, &Creation::default())?;
    let end = file.write_at(offset, &[IoSlice::new(data)])?;
    file.sync(false)?;
    Ok(end)
}

fn names(storage: &dyn Storage, at: &str, most: usize) -> Vec<String> {
    let mut dir = storage.open_dir(&path(at)).expect(at);
    let mut names = Vec::new();
    loop {
        let page = dir.next(most).expect("a page");
        assert!(page.entries.len() <= most);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        names.extend(page.entries.iter().map(|entry| text(&entry.name)));
        if !page.more {
            names.sort();
            return names;
        }
    }
}

fn local() -> (TempDir, Local) {
    let dir = tempfile::tempdir().expect("a directory");
    let export = dir.path().join("export");
    std::fs::create_dir(&export).expect("a directory");
    let local = Local::open(&export).expect("a storage");
    (dir, local)
}
