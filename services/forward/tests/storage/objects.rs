//! Buckets: one in memory, one in a directory, and one that fails.

use super::*;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, local::LocalFileSystem,
    memory::InMemory, path::Path,
};
use petasos_forward::storage::Objects;
use proptest::prelude::*;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

fn memory() -> Objects {
    Objects::new(Arc::new(InMemory::new()), "memory".into()).unwrap()
}

#[test]
fn the_suite_in_memory() {
    suite::all(&memory());
}

#[test]
fn the_suite_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
    let store = Arc::new(store.with_automatic_cleanup(true));
    suite::all(&Objects::new(store, "files".into()).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn in_any_order(ops in model::ops()) {
        model::agrees(&memory(), &ops);
    }
}

#[test]
fn names_that_objects_cannot_have() {
    let objects = memory();
    for (name, errno) in
        [(&b"\xff"[..], Errno::ILSEQ), (b"a\nb", Errno::INVAL), (b"a/.petasos", Errno::ACCESS)]
    {
        let at = RelPath::parse(name).unwrap();
        refused(objects.put(&at, b"", &finish(0)), errno);
        refused(objects.stat(&at, false), errno);
    }
    for name in ["%2F", "a#1", "*?", "ä ö", "..."] {
        put(&objects, name, name.as_bytes());
        assert_eq!(names(&objects, "", 9), [name]);
        assert_eq!(get(&objects, name).unwrap(), name.as_bytes());
        objects.remove(&path(name), false).unwrap();
    }
}

/// All that have a file open share it, and keep it when it gets another name or none.
#[test]
fn open_files() {
    let objects = memory();
    let write = |file: &dyn petasos_forward::storage::StoredFile, data: &[u8]| {
        file.write_at(0, &[IoSlice::new(data)]).unwrap()
    };
    let first = objects.open(&path("a"), NEW, &mode(0)).unwrap();
    write(&*first, b"first");
    assert_eq!(objects.stat(&path("a"), false).unwrap().size, 5, "seen before it is sent");
    assert_eq!(get(&objects, "a").unwrap(), b"first");
    objects.rename(&path("a"), &path("b"), petasos_forward::protocol::RenameMode::Keep).unwrap();
    write(&*first, b"FIRST, again");
    drop(first);
    assert_eq!(get(&objects, "b").unwrap(), b"FIRST, again");
    refused(objects.stat(&path("a"), false), Errno::NOENT);

    let gone = objects.open(&path("b"), BOTH, &mode(0)).unwrap();
    write(&*gone, b"no reader sees this");
    objects.remove(&path("b"), false).unwrap();
    write(&*gone, b"nor that");
    gone.sync(false).unwrap();
    drop(gone);
    refused(objects.stat(&path("b"), false), Errno::NOENT);

    let old = objects.open(&path("c"), NEW, &mode(0)).unwrap();
    write(&*old, b"old");
    put(&objects, "c", b"new");
    drop(old);
    assert_eq!(get(&objects, "c").unwrap(), b"new");
}

#[test]
fn large_objects() {
    let objects = memory().edit_limit(1000);
    let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at >> 4) as u8).collect();
    put(&objects, "a", &data);
    refused(objects.open(&path("a"), WRITE, &mode(0)), Errno::FBIG);
    let old = objects.open(&path("a"), READ, &mode(0)).unwrap();
    let mut into = [0; 100];
    assert_eq!(old.read_at(1 << 20, &mut into).unwrap(), 100);
    assert_eq!(into, data[1 << 20..][..100]);
    let replaced = WRITE.with(OpenFlags::TRUNCATE);
    let new = objects.open(&path("a"), replaced, &mode(0)).unwrap();
    new.write_at(0, &[IoSlice::new(b"short")]).unwrap();
    drop(new);
    refused(old.read_at(0, &mut into), Errno::STALE);
    let holes = Finish { size: 20 << 20, ..finish(1) };
    assert_eq!(objects.put(&path("b"), b"x", &holes).unwrap().size, 20 << 20);
}

/// What is staged in a directory of the caller's is there for the next server.
#[test]
fn staged_files_last() {
    let spools = tempfile::tempdir().unwrap();
    let store = Arc::new(InMemory::new());
    let start = || Objects::with_spools(store.clone(), "again".into(), spools.path()).unwrap();
    let data = vec![7; 9 << 20];
    start().stage(&[1; 16]).unwrap().write_at(0, &[IoSlice::new(&data)]).unwrap();
    let second = start();
    assert_eq!(second.stage(&[1; 16]).unwrap().attr().unwrap().size, data.len() as u64);
    second.publish(&[1; 16], &path("a"), &finish(data.len())).unwrap();
    assert!(get(&second, "a").unwrap() == data);
    assert_eq!(second.sweep(Duration::ZERO).unwrap(), 0);
}

/// Calls of a thread that belongs to a runtime wait like all others.
#[test]
fn within_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let objects = memory();
        put(&objects, "a", b"x");
        write(&objects, "a", 0, b"y").unwrap();
        assert_eq!(get(&objects, "a").unwrap(), b"y");
    });
}

/// A store that takes nothing while it is told so.
#[derive(Debug, Default)]
struct Failing {
    store: InMemory,
    fails: AtomicBool,
}

impl Failing {
    fn check(&self) -> Result<()> {
        match self.fails.load(Ordering::Relaxed) {
            true => Err(object_store::Error::Generic {
                store: "failing",
                source: std::io::Error::from_raw_os_error(28).into(),
            }),
            false => Ok(()),
        }
    }
}

impl std::fmt::Display for Failing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "failing")
    }
}

type Stream<T> = futures_util::stream::BoxStream<'static, Result<T>>;
type Answer<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

impl ObjectStore for Failing {
    fn put_opts<'a: 'c, 'b: 'c, 'c>(
        &'a self,
        at: &'b Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Answer<'c, PutResult> {
        Box::pin(async move {
            self.check()?;
            self.store.put_opts(at, payload, options).await
        })
    }

    fn put_multipart_opts<'a: 'c, 'b: 'c, 'c>(
        &'a self,
        at: &'b Path,
        options: PutMultipartOptions,
    ) -> Answer<'c, Box<dyn MultipartUpload>> {
        Box::pin(async move {
            self.check()?;
            self.store.put_multipart_opts(at, options).await
        })
    }

    fn get_opts<'a: 'c, 'b: 'c, 'c>(
        &'a self,
        at: &'b Path,
        options: GetOptions,
    ) -> Answer<'c, GetResult> {
        self.store.get_opts(at, options)
    }

    fn delete_stream(&self, paths: Stream<Path>) -> Stream<Path> {
        self.store.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> Stream<ObjectMeta> {
        self.store.list(prefix)
    }

    fn list_with_delimiter<'a: 'c, 'b: 'c, 'c>(
        &'a self,
        prefix: Option<&'b Path>,
    ) -> Answer<'c, ListResult> {
        self.store.list_with_delimiter(prefix)
    }

    fn copy_opts<'a: 'd, 'b: 'd, 'c: 'd, 'd>(
        &'a self,
        from: &'b Path,
        to: &'c Path,
        options: CopyOptions,
    ) -> Answer<'d, ()> {
        self.store.copy_opts(from, to, options)
    }
}

/// No failure goes unnoticed, and what was not sent is sent when the store takes it again.
#[test]
fn a_store_that_fails() {
    let store = Arc::new(Failing::default());
    let objects = Objects::new(store.clone(), "failing".into()).unwrap();
    let fails = |fails| store.fails.store(fails, Ordering::Relaxed);
    put(&objects, "a", b"old");
    let file = objects.open(&path("a"), BOTH, &mode(0)).unwrap();
    file.write_at(0, &[IoSlice::new(b"new")]).unwrap();
    let staged = objects.stage(&[1; 16]).unwrap();
    staged.write_at(0, &[IoSlice::new(&vec![1; 9 << 20])]).unwrap();
    drop(staged);
    fails(true);
    refused(file.sync(false), Errno::NOSPC);
    refused(objects.publish(&[1; 16], &path("b"), &finish(9 << 20)), Errno::NOSPC);
    refused(objects.put(&path("c"), b"x", &finish(1)), Errno::NOSPC);
    fails(false);
    file.sync(false).unwrap();
    assert_eq!(get(&objects, "a").unwrap(), b"new");
    assert_eq!(objects.publish(&[1; 16], &path("b"), &finish(9 << 20)).unwrap().size, 9 << 20);
    assert_eq!(names(&objects, "", 9), ["a", "b"]);
}
