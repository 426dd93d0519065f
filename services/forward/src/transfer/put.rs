//! Trees to a server.

use super::{
    Cause, Connection, Event, Observer, Options, Problem, Progress, Report,
    index::Index,
    job::{Job, THREADS, settable},
    local::{Root, hidden, key, preserved},
    source::{Item, ItemKind, Plan, Source, Tree},
    tasks::Latch,
};
use crate::{
    RelPath,
    client::RemoteError,
    protocol::{Attr, Creation, Finish, Kind, RenameMode, SetAttr},
};
use rustix::io::Errno;
use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Copies files and trees to a server: each source gets the path beside it there.
///
/// What fails is an [`Event`], and in the report; the rest continues. Dropping the future leaves
/// the files that are complete, and nothing of others under their names; the next transfer resumes
/// from there.
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
/// # std::fs::write(here.path().join("data"), b"hello")?;
/// engine.block_on(async {
///     let options = ConnectOptions::default();
///     let retry = Duration::from_secs(5);
///     let connection = Connection::connect(&engine, address, options, retry).await?.into();
///     let sources = [(here.path().to_owned(), RelPath::parse(b"copy")?)];
///     let (options, progress) = (Options::default(), Progress::new());
///     let watch = Box::new(|_: Event<'_>| {});
///     let report = transfer::put(&connection, &sources, &options, &progress, watch).await?;
///     assert_eq!((report.files, report.bytes, report.problems.len()), (1, 5, 0));
///     Ok(())
/// })
/// # .map_err(|error: Box<dyn std::error::Error>| error)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn put(
    connection: &Rc<Connection>,
    sources: &[(PathBuf, RelPath)],
    options: &Options,
    progress: &Arc<Progress>,
    watch: Observer,
) -> Result<Report, Cause> {
    let job = Job::new(connection, options, progress, watch)?;
    let mut trees = Vec::new();
    for (path, to) in sources {
        match tree(path, to) {
            Ok(tree) => trees.push(tree),
            Err(cause) => {
                let path = path.as_os_str().as_encoded_bytes().to_vec();
                job.failed(Problem { path, cause });
            }
        }
    }
    let putting = PutJob::new(job, None, false, false);
    putting.send(trees).await?;
    putting.finish().await;
    Ok(putting.job.finish())
}

/// What the user named: its directory, and its name there.
pub(super) fn tree(path: &Path, to: &RelPath) -> Result<Tree, Cause> {
    let opening = Cause::local("opening its directory");
    let (root, from) = match path.file_name() {
        Some(name) => {
            let parent = path.parent().unwrap_or(Path::new(""));
            (Root::open(parent), RelPath::root().join(name.as_encoded_bytes())?)
        }
        None => (Root::open(path), RelPath::root()),
    };
    Ok(Tree { root: root.map_err(opening)?, from, to: to.clone() })
}

/// Trees on their way to a server.
pub(super) struct PutJob {
    pub(super) job: Rc<Job>,
    pub(super) index: Option<Arc<Index>>,
    /// What is in the way is removed, whatever it is.
    force: bool,
    /// Nothing is written.
    pub(super) dry: bool,
    /// Whether the server keeps attributes.
    pub(super) attributes: bool,
    /// Directories that are being made.
    latches: RefCell<HashMap<RelPath, Rc<Latch>>>,
    /// Directories that get their attributes last.
    directories: RefCell<Vec<(RelPath, Attr)>>,
    /// Names beside the first ones: of what, and where.
    names: RefCell<Vec<(RelPath, Item)>>,
}

impl PutJob {
    pub(super) fn new(
        job: Rc<Job>,
        index: Option<Arc<Index>>,
        force: bool,
        dry: bool,
    ) -> Rc<PutJob> {
        let attributes = job.connection.remote().welcome().abilities.attributes;
        Rc::new(PutJob {
            job,
            index,
            force,
            dry,
            attributes,
            latches: RefCell::default(),
            directories: RefCell::default(),
            names: RefCell::default(),
        })
    }

    /// Sends all, but for what comes last: see [`PutJob::finish`].
    pub(super) async fn send(self: &Rc<Self>, trees: Vec<Tree>) -> Result<(), Cause> {
        let job = &self.job;
        let plan = Plan {
            options: job.options.clone(),
            small: job.connection.remote().welcome().inline,
            index: self.index.clone(),
            dry: self.dry,
            progress: Arc::clone(&job.progress),
            rate: job.rate.clone(),
        };
        let mut source = Source::start(trees, plan, THREADS).map_err(|error| Cause::Local {
            doing: "starting a thread",
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
        let this = Rc::clone(self);
        job.tasks.spawn(async move {
            while let Some(item) = source.next().await {
                // The rest is not even looked for.
                if this.job.is_over() {
                    break;
                }
                if let Some(item) = this.at_once(item) {
                    let slot = this.job.slots.take(1).await;
                    let that = Rc::clone(&this);
                    this.job.tasks.spawn(async move {
                        that.item(item).await;
                        drop(slot);
                    });
                }
            }
        });
        job.tasks.drive().await;
        let names = self.names.take();
        for (first, item) in names {
            if job.is_over() {
                job.report().unreached += 1;
                continue;
            }
            let slot = job.slots.take(1).await;
            let this = Rc::clone(self);
            job.tasks.spawn(async move {
                this.hard_link(&first, &item).await;
                drop(slot);
            });
            if self.job.slots.is_spent() {
                job.tasks.drive().await;
            }
        }
        job.tasks.drive().await;
        Ok(())
    }

    /// What takes no call; the item where it does.
    fn at_once(&self, item: Item) -> Option<Item> {
        let within = item.tree.within(&item.path);
        match &item.what {
            ItemKind::Directory { attr, there } => {
                self.job.report().directories += 1;
                if self.dry {
                    if !there {
                        self.job.say(Event::WouldWrite(within));
                    }
                    return None;
                }
                self.directories.borrow_mut().push((item.to.clone(), *attr));
                let latch = Rc::new(Latch::default());
                self.latches.borrow_mut().insert(item.to.clone(), Rc::clone(&latch));
                if *there {
                    latch.set(true);
                    return None;
                }
            }
            ItemKind::Would => {
                self.would(&item);
                return None;
            }
            ItemKind::LeftOut(what) => {
                self.job.left_out(&item.tree.root.describe(&item.path), what);
                return None;
            }
            ItemKind::Same(bytes) => {
                self.job.same(*bytes);
                return None;
            }
            ItemKind::HardLink { first } => {
                let below = &first.as_bytes()[item.tree.from.as_bytes().len()..];
                let first = [item.tree.to.as_bytes(), b"/", below].concat();
                match RelPath::parse(&first) {
                    Ok(first) => self.names.borrow_mut().push((first, item)),
                    Err(error) => self.job.failed(item.problem(error.into())),
                }
                return None;
            }
            ItemKind::Problem(cause) => {
                let problem = item.problem(cause.clone());
                self.job.failed(problem);
                return None;
            }
            _ => {}
        }
        Some(item)
    }

    /// It would be sent.
    pub(super) fn would(&self, item: &Item) {
        self.job.report().files += 1;
        self.job.say(Event::WouldWrite(item.tree.within(&item.path)));
    }

    async fn item(self: &Rc<Self>, item: Item) {
        if let ItemKind::Directory { attr, .. } = &item.what {
            let made = match self.ready(&item).await {
                true => self.directory(&item.to, attr).await,
                false => Err(Cause::Directory),
            };
            let latch = self.latches.borrow().get(&item.to).cloned();
            latch.into_iter().for_each(|latch| latch.set(made.is_ok()));
            if let Err(cause) = made {
                self.job.failed(item.problem(cause));
            }
            return;
        }
        let done = match self.ready(&item).await {
            true => self.file(&item).await,
            false => Err(Cause::Directory),
        };
        if let Err(cause) = done {
            self.job.failed(item.problem(cause));
        }
    }

    /// Waits for its directory.
    async fn ready(&self, item: &Item) -> bool {
        let latch = match item.to.split() {
            Some((parent, _)) => self.latches.borrow().get(&parent).cloned(),
            None => None,
        };
        match latch {
            Some(latch) => latch.wait().await,
            None => true,
        }
    }

    async fn directory(&self, to: &RelPath, attr: &Attr) -> Result<(), Cause> {
        if to.is_root() {
            return Ok(());
        }
        let creation = Creation { mode: attr.mode | 0o700, owner: None };
        let make = || self.job.connection.with(async |remote| remote.make_dir(to, creation).await);
        let error = match make().await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if error.errno() != Errno::EXIST {
            return Err(error.into());
        }
        let there = self.job.connection.with(async |remote| remote.stat(to, false).await).await?;
        if there.kind == Kind::Directory {
            if self.attributes && there.mode & 0o700 != 0o700 {
                let set = SetAttr { mode: Some(there.mode | 0o700), ..SetAttr::default() };
                self.job
                    .connection
                    .with(async |remote| remote.set_attr(to, set, false).await)
                    .await?;
            }
            return Ok(());
        }
        if !self.force {
            return Err(Cause::OtherKind("directory"));
        }
        self.job.connection.with(async |remote| remote.remove_file(to).await).await?;
        make().await?;
        Ok(())
    }

    async fn file(self: &Rc<Self>, item: &Item) -> Result<(), Cause> {
        let sent = self.once(item).await;
        match sent {
            Err(Cause::Remote(error)) if self.force && error.errno() == Errno::ISDIR => {
                let parallel = self.job.options.parallel;
                self.job
                    .connection
                    .with(async |remote| super::remove_tree(&remote, &item.to, parallel).await)
                    .await?;
                self.once(item).await
            }
            sent => sent,
        }
    }

    async fn once(self: &Rc<Self>, item: &Item) -> Result<(), Cause> {
        let (job, to) = (&self.job, &item.to);
        match &item.what {
            ItemKind::Small { attr, data, hash } => {
                let finish = Finish {
                    size: attr.size,
                    set: self.preserved(attr),
                    hash: *hash,
                    durable: job.options.durable,
                    replace: true,
                };
                job.connection
                    .with(async |remote| remote.put(to, data.clone(), finish).await)
                    .await?;
                job.moved(attr.size);
                job.file();
                Ok(())
            }
            ItemKind::Large { attr, compare } => self.upload(item, attr, *compare).await,
            ItemKind::Attributes { attr } => {
                let set = self.preserved(attr);
                job.connection.with(async |remote| remote.set_attr(to, set, false).await).await?;
                job.same(0);
                Ok(())
            }
            ItemKind::Symlink { attr, target } => {
                self.symlink(to, target).await?;
                self.apply_attr(to, attr).await?;
                job.report().symlinks += 1;
                Ok(())
            }
            ItemKind::Fifo { attr } => {
                let creation = Creation { mode: attr.mode, owner: None };
                self.replacing(to, async |remote, path| {
                    remote.make_node(path, Kind::Fifo, creation).await
                })
                .await?;
                self.apply_attr(to, attr).await?;
                job.report().fifos += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn preserved(&self, attr: &Attr) -> SetAttr {
        settable(preserved(attr, self.job.options.owner), self.attributes)
    }

    /// Owner and times of something that is no file.
    async fn apply_attr(&self, to: &RelPath, attr: &Attr) -> Result<(), Cause> {
        if self.attributes {
            let mut set = self.preserved(attr);
            if attr.kind == Kind::Symlink {
                set.mode = None;
            }
            self.job.connection.with(async |remote| remote.set_attr(to, set, false).await).await?;
        }
        Ok(())
    }

    async fn symlink(&self, to: &RelPath, target: &[u8]) -> Result<(), Cause> {
        let connection = &self.job.connection;
        let made = connection.with(async |remote| remote.make_symlink(to, target).await).await;
        match made {
            Err(error) if error.errno() == Errno::EXIST => {}
            made => return Ok(made.map(drop)?),
        }
        // `EINVAL`: something else.
        if let Ok(there) = connection.with(async |remote| remote.read_link(to).await).await
            && there == target
        {
            return Ok(());
        }
        self.replacing(to, async |remote, path| remote.make_symlink(path, target).await).await
    }

    /// Makes something under a hidden name, and gives it its own in place of what has that.
    async fn replacing<T>(
        &self,
        to: &RelPath,
        make: impl AsyncFn(crate::client::Remote, &RelPath) -> Result<T, RemoteError>,
    ) -> Result<(), Cause> {
        let Some((parent, name)) = to.split() else { return Err(Cause::OtherKind("directory")) };
        let key = key(to);
        let hidden = parent.join(&hidden(name.as_encoded_bytes(), key))?;
        let connection = &self.job.connection;
        let made = connection.with(async |remote| make(remote, &hidden).await).await;
        match made {
            Err(error) if error.errno() == Errno::EXIST => {
                connection.with(async |remote| remote.remove_file(&hidden).await).await?;
                connection.with(async |remote| make(remote, &hidden).await).await?;
            }
            made => drop(made?),
        }
        let renamed = connection
            .with(async |remote| remote.rename(&hidden, to, RenameMode::Replace).await)
            .await;
        match renamed {
            // The answer to the first try was lost, or the hidden one was not noticed.
            Err(error) if error.errno() == Errno::NOENT => Ok(()),
            Err(error) => {
                // The first error is the one to tell.
                let _ = connection.with(async |remote| remote.remove_file(&hidden).await).await;
                Err(error.into())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn hard_link(&self, first: &RelPath, item: &Item) {
        let (connection, to) = (&self.job.connection, &item.to);
        let linked = async {
            let made = connection.with(async |remote| remote.hard_link(first, to).await).await;
            match made {
                Err(error) if error.errno() == Errno::EXIST => {}
                made => return Ok(made.map(drop)?),
            }
            let ours = connection.with(async |remote| remote.stat(first, false).await).await?;
            let theirs = connection.with(async |remote| remote.stat(to, false).await).await?;
            if (ours.ino, ours.kind) == (theirs.ino, theirs.kind) && ours.links > 1 {
                return Ok(());
            }
            if self.force && theirs.kind == Kind::Directory {
                let parallel = self.job.options.parallel;
                connection
                    .with(async |remote| super::remove_tree(&remote, to, parallel).await)
                    .await?;
            }
            self.replacing(to, async |remote, path| remote.hard_link(first, path).await).await
        };
        match linked.await {
            Ok(()) => {
                self.job.report().hard_links += 1;
                self.job.progress.files.fetch_add(1, Relaxed);
            }
            Err(cause) => self.job.failed(item.problem(cause)),
        }
    }

    /// What comes last: attributes of directories, those that are deepest first.
    pub(super) async fn finish(self: &Rc<Self>) {
        if !self.attributes || self.job.is_over() {
            return;
        }
        let mut directories = self.directories.take();
        let depth = |path: &RelPath| match path.is_root() {
            true => 0,
            false => path.as_bytes().iter().filter(|byte| **byte == b'/').count() + 1,
        };
        directories.sort_by_key(|(path, _)| std::cmp::Reverse(depth(path)));
        for level in directories.chunk_by(|a, b| depth(&a.0) == depth(&b.0)) {
            for part in level.chunks(self.job.options.parallel.max(1)) {
                for (path, attr) in part {
                    let made = self.latches.borrow().get(path).is_none_or(|latch| latch.is_ok());
                    if made && !path.is_root() {
                        let (this, path, attr) = (Rc::clone(self), path.clone(), *attr);
                        self.job.tasks.spawn(async move {
                            if let Err(cause) = this.apply_attr(&path, &attr).await {
                                let path = path.as_bytes().to_vec();
                                this.job.failed(Problem { path, cause });
                            }
                        });
                    }
                }
                self.job.tasks.drive().await;
            }
        }
    }
}
