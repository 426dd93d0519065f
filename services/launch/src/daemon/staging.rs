//! Files of the job on their way to its nodes: after all daemons are ready, and before any rank
//! starts. What moves them is a plug-in; here is when, where to, and what becomes of the job if
//! they do not come.

use super::{
    Daemon,
    control::{Coming, Setup},
    wake::Wake,
};
use crate::{
    files::Files,
    handshake::derived,
    outcome::Staged,
    plugins::{FileMover, Key, NotPlaced, Placing},
};
use petasos_fabric::Time;
use petasos_pmix::server::host_name;
use petasos_pmix::{Node, Value, event::Range, status};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// The variable, for ranks, that names the directory with the files of their job on their node.
pub(crate) const STAGE_DIR: &str = "PETASOS_STAGE_DIR";
/// The same as a key of the job.
const STAGE_KEY: &str = "petasos.stage.dir";
/// How long a mover gets to end that was told to.
const LEAVE: Duration = Duration::from_secs(3);

/// Files that the head node has brought to the nodes.
#[derive(Clone, Debug)]
pub(crate) struct ToStage {
    pub(crate) files: Arc<Files>,
    pub(crate) mover: Arc<dyn FileMover>,
    pub(crate) estimate: Duration,
    pub(crate) coming: Coming,
}

/// A mover at work.
#[derive(Debug)]
pub(crate) struct Work {
    placing: Arc<Placing>,
    thread: Option<JoinHandle<()>>,
    begun: Time,
}

impl Work {
    /// What is on its way to a node.
    pub(super) fn under_way(&self, node: Node) -> Option<PathBuf> {
        self.placing.under_way(node)
    }

    /// Has the mover end, and waits for that, but not for ever.
    pub(crate) fn end(&mut self) {
        self.placing.stop();
        let Some(thread) = self.thread.take() else { return };
        let step = Duration::from_millis(2);
        for _ in 0..LEAVE.as_millis() / step.as_millis() {
            if thread.is_finished() {
                let _ = thread.join();
                return;
            }
            thread::sleep(step);
        }
    }
}

/// What ranks, and commands that ask, may know of the files before they are there.
pub(crate) fn described(staging: &ToStage) -> Vec<(String, Value)> {
    let key = |name: &str, value: Value| (format!("petasos.stage.{name}"), value);
    vec![
        key("files", staging.files.count().into()),
        key("bytes", staging.files.bytes().into()),
        key("estimate", Value::Real(staging.estimate.as_secs_f64())),
    ]
}

impl Daemon {
    /// Makes the directory for the files, if any come here, and has ranks know of it.
    pub(super) fn make_stage(&mut self, setup: &mut Setup) -> Result<(), String> {
        let ranks = setup.job.runs.iter().any(|run| run.node == self.me && run.count > 0);
        let spare = self.me.0 as usize + setup.spares as usize >= setup.job.nodes.len();
        let Some(coming) = setup.coming.as_ref().filter(|_| ranks || spare) else {
            return Ok(());
        };
        // As the user wrote it, where the user was.
        let directory = coming.directory.as_ref();
        let directory = directory.map(|named| Path::new(&setup.program.directory).join(named));
        let name = format!("{}.{}", setup.job.name, self.me.0);
        if let Some(instead) = self.files.make_stage(directory.as_deref(), &name)? {
            self.log(&instead);
        }
        let path = self.files.stage().unwrap_or(Path::new(""));
        let text = path.to_str();
        let text = text.ok_or_else(|| format!("{}: this path is no text", path.display()))?;
        let path = text.to_owned();
        if let (Some(name), Some(first)) = (&coming.program, setup.program.arguments.first_mut()) {
            *first = format!("{path}/{name}");
        }
        setup.program.environment.push((STAGE_DIR.to_owned(), path.clone()));
        setup.job.info.push((STAGE_KEY.to_owned(), path.into()));
        Ok(())
    }

    /// Gets ready to take files; gives where.
    pub(super) fn receive_files(&mut self, setup: &Setup) -> Result<Vec<u8>, String> {
        let Some(coming) = setup.coming.as_ref().filter(|_| self.files.stage().is_some()) else {
            return Ok(Vec::new());
        };
        let mover = self.plugins.movers.iter().find(|mover| mover.name() == coming.mover);
        let mover =
            mover.ok_or_else(|| format!("nothing here moves files by `{}`", coming.mover))?;
        let own = match self.head {
            Some(_) => None,
            None => {
                let own = self.peers.own_address(Some(Node::HEAD));
                let own = own.or_else(|| self.peers.own_address(None));
                let own = own.and_then(|text| text.parse().ok());
                Some(own.ok_or("the route to the head node has no address")?)
            }
        };
        let key = self.files_key();
        self.files.receive(&**mover, own, &key)
    }

    fn files_key(&self) -> Key {
        Key(derived(&self.secret, b"petasos files"))
    }

    /// All daemons are ready: files are brought to them.
    pub(super) fn begin_staging(&mut self) {
        let (key, begun) = (self.files_key(), self.clock.now());
        let waker = self.waker.another();
        let Some(head) = &mut self.head else { return };
        let Some(staging) = &head.plan.staging else { return };
        let targets = head.roster.targets(head.controller.hosts());
        let placing = Arc::new(Placing::new(staging.files.clone(), targets, key));
        let (work, mover) = (placing.clone(), staging.mover.clone());
        let started = waker.and_then(|waker| {
            let place = move || waker.tell(Wake::Placed(place_all(&*mover, &work)));
            thread::Builder::new().name("files".to_owned()).spawn(place)
        });
        match started {
            Ok(thread) => head.work = Some(Work { placing, thread: Some(thread), begun }),
            Err(error) => {
                let text = format!("bringing files to the nodes: {error}");
                self.tell_controller(|controller, now| controller.fail(now, 1, text));
            }
        }
    }

    /// All files are there, or one cannot be.
    pub(super) fn placed(&mut self, result: Result<(), NotPlaced>) {
        let now = self.clock.now();
        let Some(head) = &mut self.head else { return };
        let staging = head.controller.is_staging();
        let Some(work) = head.work.as_mut().filter(|_| staging) else { return };
        work.end();
        let (files, hosts) = (&work.placing.files, work.placing.targets.len());
        let took = now.since(work.begun);
        if let Err(why) = result {
            let text = why.to_string();
            return self.tell_controller(|controller, now| controller.fail(now, 1, text));
        }
        let staged = Staged { files: files.count(), bytes: files.bytes(), hosts, took };
        let info = vec![
            ("petasos.stage.files".to_owned(), staged.files.into()),
            ("petasos.stage.bytes".to_owned(), staged.bytes.into()),
            ("petasos.stage.seconds".to_owned(), Value::Real(took.as_secs_f64())),
        ];
        self.engine.announce(now, status::FILES_STAGED, Range::Session, info);
        self.tell_controller(|controller, now| controller.staged(now, staged));
    }

    /// No more files come.
    pub(super) fn end_staging(&mut self) {
        if let Some(work) = self.head.as_mut().and_then(|head| head.work.as_mut()) {
            work.end();
        }
        self.files.all_received();
    }

    /// It is known that files will not be needed: so nothing new is begun.
    pub(super) fn give_up_staging(&mut self) {
        if let Some(work) = self.head.as_ref().and_then(|head| head.work.as_ref()) {
            work.placing.stop();
        }
    }
}

/// Brings all files to all nodes; each node gets the same.
fn place_all(mover: &dyn FileMover, placing: &Placing) -> Result<(), NotPlaced> {
    let failed = |file: &Path, why: &str| {
        Err(NotPlaced { host: host_name(), file: file.to_owned(), why: why.to_owned() })
    };
    // Whatever becomes of a plug-in, the job must not wait for it without end.
    let Ok(placed) = catch_unwind(AssertUnwindSafe(|| mover.place(placing))) else {
        return failed(Path::new(mover.name()), "what moves files here is broken");
    };
    placed?;
    match placing.files.changed() {
        None => Ok(()),
        Some(file) => failed(file, "it changed, or vanished, while it was copied"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        files::FileToStage,
        plugins::{Estimate, Receiving},
    };
    use std::{fs, net::IpAddr};

    /// A mover that fails as it is told to.
    #[derive(Debug)]
    struct Fails(fn(&Placing));

    impl FileMover for Fails {
        fn name(&self) -> &str {
            "fails"
        }

        fn estimate(&self, _: &Files, _: u32, _: bool) -> Estimate {
            Estimate { time: Duration::ZERO, basis: String::new() }
        }

        fn receive(&self, _: &Path, _: Option<IpAddr>, _: &Key) -> Result<Receiving, String> {
            Err("nothing comes".to_owned())
        }

        fn place(&self, placing: &Placing) -> Result<(), NotPlaced> {
            (self.0)(placing);
            Ok(())
        }
    }

    #[test]
    fn a_mover_that_breaks_or_a_file_that_changes_is_told() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data");
        fs::write(&path, "one").unwrap();
        let entry = FileToStage::new(&path, "data").unwrap();
        let files = Arc::new(Files::scan(vec![entry]).unwrap());
        let placing = Placing::new(files, Vec::new(), Key([0; 32]));
        assert_eq!(place_all(&Fails(|_| ()), &placing), Ok(()));
        let broken = place_all(&Fails(|_| panic!("as it was told to")), &placing).unwrap_err();
        assert!(broken.to_string().contains("is broken"), "{broken}");
        let changes = |placing: &Placing| {
            fs::write(placing.files.entries()[0].source(), "another").unwrap();
        };
        let changed = place_all(&Fails(changes), &placing).unwrap_err();
        assert_eq!(changed.file, path.canonicalize().unwrap());
    }

    #[test]
    fn a_mover_that_does_not_end_is_not_waited_for_without_end() {
        let placing = Arc::new(Placing::new(Arc::default(), Vec::new(), Key([0; 32])));
        let (told, ends) = std::sync::mpsc::channel::<()>();
        let stays = thread::spawn(move || ends.recv().unwrap_or_default());
        let mut work = Work { placing: placing.clone(), thread: Some(stays), begun: Time::NEVER };
        work.end();
        assert!(placing.is_stopped());
        drop(told);
    }
}
