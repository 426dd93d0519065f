//! Trees from a server. What it says of names and links is not trusted: nothing is written outside
//! of where the user wants it.

use super::{
    Cause, Connection, Event, Observer, Options, Problem, Progress, Report,
    index::{Decision, Index},
    job::Job,
    local::{self, Root, preserved},
    tasks::Budget,
};
use crate::{
    RelPath,
    client::{Remote, RemoteError},
    protocol::{Attr, DirEntry, Kind, SetAttr},
};
use rustix::io::Errno;
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Directories that are read at a time.
const DIRECTORIES: u64 = 16;

/// Copies files and trees from a server: each source gets the path beside it here.
///
/// What fails is an [`Event`], and in the report; the rest continues. Dropping the future leaves
/// the files that are complete, and hidden partial ones; the next transfer resumes from there.
///
/// # Errors
/// Only where nothing could be begun.
///
/// ```
/// use petasos_forward::{
///     RelPath,
///     client::ConnectOptions,
///     transfer::{self, Connection, Event, Options, Progress},
/// };
/// use std::time::Duration;
///
/// # use petasos_forward::{server::{Server, ServerConfig}, storage::Local};
/// # use petasos::{Engine, EngineConfig, OpenOptions};
/// # use std::sync::Arc;
/// # let folder = tempfile::tempdir()?;
/// # let storage = Arc::new(Local::open(folder.path())?);
/// # let server =
/// #     Server::listen(storage, &["self://*"], &OpenOptions::default(), ServerConfig::default())?;
/// # let address = &server.addresses()[0];
/// # let endpoint = petasos::open("self://*", &OpenOptions::default())?;
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// # let here = tempfile::tempdir()?;
/// # std::fs::write(folder.path().join("data"), b"hello")?;
/// engine.block_on(async {
///     let options = ConnectOptions::default();
///     let retry = Duration::from_secs(5);
///     let connection = Connection::connect(&engine, address, options, retry).await?.into();
///     let sources = [(RelPath::parse(b"data")?, here.path().join("copy"))];
///     let (options, progress) = (Options::default(), Progress::new());
///     let watch = Box::new(|_: Event<'_>| {});
///     let report = transfer::get(&connection, &sources, &options, &progress, watch).await?;
///     assert_eq!((report.files, report.bytes), (1, 5));
///     assert_eq!(std::fs::read(here.path().join("copy"))?, b"hello");
///     Ok(())
/// })
/// # .map_err(|error: Box<dyn std::error::Error>| error)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn get(
    connection: &Rc<Connection>,
    sources: &[(RelPath, PathBuf)],
    options: &Options,
    progress: &Arc<Progress>,
    watch: Observer,
) -> Result<Report, Cause> {
    let job = Job::new(connection, options, progress, watch)?;
    let getting = GetJob::new(job, None, false, false);
    let mut trees = Vec::new();
    for (from, to) in sources {
        match Target::open(from, to) {
            Ok(target) => trees.push(target),
            Err(cause) => {
                let path = to.as_os_str().as_encoded_bytes().to_vec();
                getting.job.failed(Problem { path, cause });
            }
        }
    }
    getting.fetch(trees).await;
    getting.finish().await;
    Ok(getting.job.finish())
}

/// Where a tree goes.
#[derive(Debug)]
pub(super) struct Target {
    /// At the server.
    pub(super) from: RelPath,
    pub(super) root: Root,
    /// Below the root; nothing when the tree's contents go into the root itself.
    pub(super) to: RelPath,
}

impl Target {
    pub(super) fn open(from: &RelPath, to: &Path) -> Result<Target, Cause> {
        let opening = Cause::local("opening the directory it goes to");
        let (root, to) = match to.file_name() {
            Some(name) => {
                let parent = to.parent().unwrap_or(Path::new(""));
                (Root::open(parent), RelPath::root().join(name.as_encoded_bytes())?)
            }
            None => (Root::open(to), RelPath::root()),
        };
        Ok(Target { from: from.clone(), root: root.map_err(opening)?, to })
    }

    /// Where something at the server goes.
    fn place(&self, path: &RelPath) -> Result<RelPath, crate::PathError> {
        RelPath::parse(&[self.to.as_bytes(), b"/", self.within(path)].concat())
    }

    /// Its path within the tree.
    fn within<'a>(&self, path: &'a RelPath) -> &'a [u8] {
        let below = &path.as_bytes()[self.from.as_bytes().len()..];
        below.strip_prefix(b"/").unwrap_or(below)
    }
}

/// A file on its way from a server.
pub(super) struct Destination {
    pub(super) target: Arc<Target>,
    pub(super) from: RelPath,
    pub(super) to: RelPath,
}

impl Destination {
    fn problem(&self, cause: Cause) -> Problem {
        Problem { path: self.from.as_bytes().to_vec(), cause }
    }

    /// Names what is hidden of it: the same in each transfer of it.
    pub(super) fn key(&self) -> u64 {
        local::key(&self.from)
    }

    /// Does something in its directory, on a thread of the disk.
    pub(super) async fn there<T: Send + 'static>(
        &self,
        job: &Job,
        doing: &'static str,
        work: impl FnOnce(std::os::fd::OwnedFd, &[u8]) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Cause> {
        let (target, to) = (Arc::clone(&self.target), self.to.clone());
        let done = job.disk.run(move || {
            let Some((parent, name)) = to.split() else { return Err(Errno::ISDIR) };
            work(target.root.directory(&parent)?, name.as_encoded_bytes())
        });
        done.await.map_err(|error| match error {
            Errno::LOOP => Cause::OtherKind("directory"),
            error => Cause::Local { doing, error },
        })
    }
}

/// Trees on their way from a server.
pub(super) struct GetJob {
    pub(super) job: Rc<Job>,
    pub(super) index: Option<Arc<Index>>,
    /// What is in the way is removed, whatever it is.
    force: bool,
    pub(super) dry: bool,
    /// Directories that are being read.
    open: Rc<Budget>,
    /// Directories that get their attributes last.
    directories: RefCell<Vec<(Arc<Target>, RelPath, Attr)>>,
    /// The first names of files that have several, and the others.
    names: RefCell<HashMap<(*const Target, u64), RelPath>>,
    others: RefCell<Vec<(RelPath, Destination)>>,
}

impl GetJob {
    pub(super) fn new(
        job: Rc<Job>,
        index: Option<Arc<Index>>,
        force: bool,
        dry: bool,
    ) -> Rc<GetJob> {
        Rc::new(GetJob {
            job,
            index,
            force,
            dry,
            open: Budget::new(DIRECTORIES),
            directories: RefCell::default(),
            names: RefCell::default(),
            others: RefCell::default(),
        })
    }

    /// Fetches all, but for what comes last: see [`GetJob::finish`].
    pub(super) async fn fetch(self: &Rc<Self>, targets: Vec<Target>) {
        let this = Rc::clone(self);
        self.job.tasks.spawn(async move {
            for target in targets {
                let target = Arc::new(target);
                let connection = &this.job.connection;
                let from = &target.from;
                match connection.with(async |remote| remote.stat(from, false).await).await {
                    Ok(attr) => {
                        let (from, to) = (target.from.clone(), target.to.clone());
                        this.entry(Destination { target, from, to }, attr).await;
                    }
                    Err(error) => {
                        let path = from.as_bytes().to_vec();
                        this.job.failed(Problem { path, cause: error.into() });
                        this.incomplete();
                    }
                }
            }
        });
        self.job.tasks.drive().await;
        // Nothing is looked for any more.
        self.job.progress.all_found.store(true, Relaxed);
        for (first, place) in self.others.take() {
            self.hard_link(first, place).await;
        }
    }

    /// It would be fetched.
    pub(super) fn would(&self, place: &Destination) {
        self.job.report().files += 1;
        self.job.say(Event::WouldWrite(place.target.within(&place.from)));
    }

    fn incomplete(&self) {
        if let Some(index) = &self.index {
            index.incomplete();
        }
    }

    /// Something that the server has. Waits until its turn comes, not until it is there.
    async fn entry(self: &Rc<Self>, place: Destination, attr: Attr) {
        let job = &self.job;
        let within = place.target.within(&place.from);
        let directory = attr.kind == Kind::Directory;
        // What was named is wanted.
        if !within.is_empty() && job.options.excludes(within, directory) {
            return;
        }
        let unwanted = match attr.kind {
            Kind::Fifo if !job.options.fifos => Some("a FIFO"),
            Kind::Socket => Some("a socket"),
            Kind::CharDevice | Kind::BlockDevice => Some("a device"),
            _ => None,
        };
        if let Some(what) = unwanted {
            return job.left_out(place.from.as_bytes(), what);
        }
        let decided = self.index.as_ref().map_or(Decision::Send, |i| i.decide(within, &attr));
        if directory {
            job.report().directories += 1;
            if self.dry && decided == Decision::Send {
                job.say(Event::WouldWrite(within));
            }
            let this = Rc::clone(self);
            return job.tasks.spawn(async move { this.directory(place, attr).await });
        }
        if attr.kind == Kind::File {
            job.progress.found(attr.size);
        }
        // Names beside the first one are only ever linked.
        if attr.kind == Kind::File && attr.links > 1 && !self.dry {
            let mut names = self.names.borrow_mut();
            let number = (Arc::as_ptr(&place.target), attr.ino);
            let first = names.entry(number).or_insert_with(|| place.to.clone());
            if *first != place.to {
                let first = first.clone();
                return self.others.borrow_mut().push((first, place));
            }
        }
        match decided {
            Decision::Same => return job.same(attr.size),
            Decision::Send | Decision::Attributes if self.dry => return self.would(&place),
            _ => {}
        }
        let slot = job.slots.take(1).await;
        let this = Rc::clone(self);
        job.tasks.spawn(async move {
            let mut done = this.file(&place, &attr, decided).await;
            if this.force && matches!(&done, Err(Cause::Local { error: Errno::ISDIR, .. })) {
                done = match this.remove_obstacle(&place).await {
                    Ok(()) => this.file(&place, &attr, decided).await,
                    Err(cause) => Err(cause),
                };
            }
            if let Err(cause) = done {
                this.job.failed(place.problem(cause));
            }
            drop(slot);
        });
    }

    async fn directory(self: &Rc<Self>, place: Destination, attr: Attr) {
        let one = self.open.take(1).await;
        let mut made = Ok(());
        if !self.dry {
            made = self.make_directory(&place).await;
            if self.force && matches!(&made, Err(Cause::OtherKind(_))) {
                made = match self.remove_obstacle(&place).await {
                    Ok(()) => self.make_directory(&place).await,
                    Err(cause) => Err(cause),
                };
            }
            let entry = (Arc::clone(&place.target), place.to.clone(), attr);
            if made.is_ok() {
                self.directories.borrow_mut().push(entry);
            }
        }
        if let Err(cause) = made {
            self.incomplete();
            return self.job.failed(place.problem(cause));
        }
        // In another session the directory is read again: what was seen is not taken twice.
        let seen = RefCell::new(HashSet::new());
        let listed =
            self.job.connection.with(async |remote| self.list(remote, &place, &seen).await);
        if let Err(error) = listed.await {
            self.incomplete();
            self.job.failed(place.problem(error.into()));
        }
        drop(one);
    }

    async fn list(
        self: &Rc<Self>,
        remote: Remote,
        place: &Destination,
        seen: &RefCell<HashSet<Vec<u8>>>,
    ) -> Result<(), RemoteError> {
        let mut directory = remote.open_dir(&place.from).await?;
        while let Some(page) = directory.next_page().await? {
            for DirEntry { name, attr } in page {
                let from = place.from.join(&name);
                let to = from.clone().and_then(|from| place.target.place(&from));
                match (from, to) {
                    (Ok(from), Ok(to)) => {
                        if seen.borrow_mut().insert(name) {
                            let target = Arc::clone(&place.target);
                            self.entry(Destination { target, from, to }, attr).await;
                        }
                    }
                    (Err(error), _) | (_, Err(error)) => {
                        let path = [place.from.as_bytes(), b"/", &name].concat();
                        self.job.failed(Problem { path, cause: error.into() });
                    }
                }
            }
        }
        Ok(())
    }

    async fn make_directory(&self, place: &Destination) -> Result<(), Cause> {
        if place.to.is_root() {
            return Ok(());
        }
        let made = place.there(&self.job, "making the directory", |directory, name| {
            local::make_dir(directory, name)
        });
        match made.await {
            Err(Cause::Local { error: Errno::NOTDIR, .. }) => Err(Cause::OtherKind("directory")),
            made => made,
        }
    }

    /// Removes what is in the way here.
    async fn remove_obstacle(&self, place: &Destination) -> Result<(), Cause> {
        place
            .there(&self.job, "removing what is in the way", |directory, name| {
                local::remove_all(&directory, name)
            })
            .await
    }

    async fn file(
        self: &Rc<Self>,
        place: &Destination,
        attr: &Attr,
        decided: Decision,
    ) -> Result<(), Cause> {
        let job = &self.job;
        match (attr.kind, decided) {
            (Kind::File, Decision::Compare) => self.download(place, attr, true).await,
            (_, Decision::Attributes) => {
                let set = self.preserved(attr);
                place
                    .there(job, "changing", move |d, name| local::apply_attr(d, name, &set))
                    .await?;
                job.same(attr.size);
                Ok(())
            }
            (Kind::Symlink, _) => {
                let from = &place.from;
                let target =
                    job.connection.with(async |remote| remote.read_link(from).await).await?;
                let (key, set) = (place.key(), self.preserved(attr));
                place
                    .there(job, "making the link", move |directory, name| {
                        local::make_symlink(directory, name, key, &target, &set)
                    })
                    .await?;
                job.report().symlinks += 1;
                Ok(())
            }
            (Kind::Fifo, _) => {
                let (key, set) = (place.key(), self.preserved(attr));
                place
                    .there(job, "making the FIFO", move |directory, name| {
                        local::make_fifo(directory, name, key, &set)
                    })
                    .await?;
                job.report().fifos += 1;
                Ok(())
            }
            _ => self.data(place, attr).await,
        }
    }

    async fn data(self: &Rc<Self>, place: &Destination, attr: &Attr) -> Result<(), Cause> {
        let job = &self.job;
        let small = job.connection.remote().welcome().inline;
        let holes = job.connection.remote().welcome().abilities.holes && local::has_holes(attr);
        if attr.size > small || holes || job.options.checksum {
            return self.download(place, attr, false).await;
        }
        let from = &place.from;
        let got = job.connection.with(async |remote| remote.get(from, small).await).await?;
        let (attr, Some(data)) = got else { return self.download(place, attr, false).await };
        if data.len() as u64 != attr.size {
            return Err(Cause::Changed);
        }
        let (key, set, durable) = (place.key(), self.preserved(&attr), job.options.durable);
        let rate = job.rate.clone();
        place
            .there(job, "writing", move |directory, name| {
                if let Some(rate) = rate {
                    rate.pay(data.len() as u64);
                }
                local::write_whole(directory, name, key, &data, &set, durable)
            })
            .await?;
        job.moved(attr.size);
        job.file();
        Ok(())
    }

    pub(super) fn preserved(&self, attr: &Attr) -> SetAttr {
        preserved(attr, self.job.options.owner)
    }

    async fn hard_link(&self, first: RelPath, place: Destination) {
        let (key, force) = (place.key(), self.force);
        let target = Arc::clone(&place.target);
        let linked = place.there(&self.job, "linking", move |directory, name| {
            let (parent, from) = first.split().ok_or(Errno::ISDIR)?;
            let parent = target.root.directory(&parent)?;
            let link =
                || local::hard_link((&parent, from.as_encoded_bytes()), (&directory, name), key);
            match link() {
                Err(Errno::ISDIR) if force => {
                    local::remove_all(&directory, name)?;
                    link()
                }
                linked => linked,
            }
        });
        match linked.await {
            Ok(()) => {
                self.job.report().hard_links += 1;
                self.job.progress.files.fetch_add(1, Relaxed);
            }
            Err(cause) => self.job.failed(place.problem(cause)),
        }
    }

    /// What comes last: attributes of directories, those that are deepest first.
    pub(super) async fn finish(&self) {
        let mut directories = self.directories.take();
        // What is below comes later in this order, and so earlier in the opposite one.
        directories.sort_by(|a, b| b.1.cmp(&a.1));
        // The user's own directory, into which a tree goes, stays as it is.
        for (target, path, attr) in directories.into_iter().filter(|d| !d.1.is_root()) {
            let set = self.preserved(&attr);
            let (root, below) = (Arc::clone(&target), path.clone());
            let same_attr = self.job.disk.run(move || {
                let directory = root.root.directory(&below)?;
                local::apply(&directory, &set)
            });
            if let Err(error) = same_attr.await {
                let path = target.root.describe(&path);
                let cause = Cause::Local { doing: "changing", error };
                self.job.failed(Problem { path, cause });
            }
        }
    }
}
