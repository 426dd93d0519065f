//! The rows of mounts: large files by block size, small files, metadata, several processes.

use super::{
    super::{
        Part,
        arena::{Arena, share},
        cells::{Cell, Task},
        contender::Access,
        mounted::Mounted,
        process,
        work::Work,
    },
    Entrant, Rounds, no_such_command,
};
use crate::{
    exit::{Code, Outcome},
    scratch,
};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Blocks of writes with an fsync, and of several processes.
const LARGE_BLOCK: u64 = 1 << 20;

/// After this time all mounts have sent what was closed.
const SETTLED: Duration = Duration::from_millis(100);

impl Rounds<'_> {
    pub(super) fn mounts(&mut self, parts: &[Part]) -> Outcome {
        if parts.contains(&Part::Mounts) {
            self.remount()?;
            self.writes()?;
            self.reads()?;
            self.metadata()?;
        }
        if parts.contains(&Part::Clients) {
            self.processes()?;
        }
        self.unmount()
    }

    fn writes(&mut self) -> Outcome {
        let blocks = self.arena.sizes.blocks.clone();
        let plain = blocks.into_iter().map(|block| (block, false));
        for (block, sync) in plain.chain([(LARGE_BLOCK, true)]) {
            self.row(Cell::Write { block, sync }, &|arena, entrant, _, root, check| {
                let (there, here) = in_mount(arena, entrant, root);
                let bytes = arena.sizes.by_block(block);
                let seconds = arena.work(&[Work::Write {
                    path: here,
                    bytes,
                    block: block as usize,
                    sync,
                }])?;
                if check {
                    // In the export, not through the mount.
                    arena.work(&[Work::Check { path: there.clone(), bytes }])?;
                }
                scratch::remove(&there);
                Ok(bytes as f64 / 1e9 / seconds)
            })?;
        }
        self.row(Cell::CreateFiles, &|arena, entrant, _, root, check| {
            let (there, directory) = in_mount(arena, entrant, root);
            let end = arena.sizes.files;
            let seconds = arena.work(&[Work::CreateFiles { directory, first: 0, end }])?;
            if check {
                arena.compare(&arena.tree(), &there)?;
            }
            scratch::remove(&there);
            Ok(end as f64 / seconds)
        })
    }

    /// Each with a new mount.
    fn reads(&mut self) -> Outcome {
        for block in self.arena.sizes.blocks.clone() {
            self.remount()?;
            self.row(Cell::Read { block }, &|arena, _, _, root, check| {
                let path = within(arena, root, &arena.medium());
                let bytes = arena.sizes.by_block(block);
                let work = Work::Read { path: path.clone(), bytes, block: block as usize };
                let seconds = arena.work(&[work])?;
                if check {
                    arena.compare(&arena.medium(), &path)?;
                }
                Ok(bytes as f64 / 1e9 / seconds)
            })?;
        }
        self.remount()?;
        self.row(Cell::ReadFiles, &|arena, _, _, root, check| {
            let (directory, end) = (within(arena, root, &arena.tree()), arena.sizes.files);
            let work = Work::ReadFiles { directory: directory.clone(), first: 0, end };
            let seconds = arena.work(&[work])?;
            if check {
                arena.compare(&arena.tree(), &directory)?;
            }
            Ok(end as f64 / seconds)
        })
    }

    fn metadata(&mut self) -> Outcome {
        for entrant in &mut self.entrants {
            entrant.empty = Some(self.arena.target(&entrant.key));
        }
        let count = self.arena.sizes.empty;
        type Make = fn(PathBuf, usize) -> Work;
        let steps: [(Cell, Make); 5] = [
            (Cell::Create, |directory, count| Work::Create { directory, count }),
            (Cell::Stat, |directory, count| Work::Stat { directory, count }),
            (Cell::Readdir, |directory, count| Work::Readdir { directory, count }),
            (Cell::Rename, |directory, count| Work::Rename { directory, count }),
            (Cell::Unlink, |directory, count| Work::Unlink { directory, count }),
        ];
        for (cell, work) in steps {
            if matches!(cell, Cell::Stat | Cell::Readdir) {
                // So that the mount has to ask the server.
                self.remount()?;
            }
            self.row(cell, &|arena, entrant, _, root, _| {
                let Some(there) = &entrant.empty else { return Err(no_such_command()) };
                let seconds = arena.work(&[work(within(arena, root, there), count)])?;
                let begin = Instant::now();
                if cell == Cell::Create {
                    // Some mounts answer before the server has the file.
                    arena.wait_for_entries(there, count)?;
                }
                Ok(count as f64 / (seconds + begin.elapsed().as_secs_f64()))
            })?;
        }
        for entrant in &mut self.entrants {
            if let Some(directory) = entrant.empty.take() {
                scratch::remove(&directory);
            }
        }
        Ok(())
    }

    /// Several processes in one mount.
    fn processes(&mut self) -> Outcome {
        for clients in some(&self.arena.sizes.clients) {
            for task in [Task::Write, Task::Read, Task::Small] {
                self.remount()?;
                let cell = Cell::Clients { access: Access::Mount, task, clients };
                self.row(cell, &|arena, entrant, _, root, _| {
                    let parts = arena.parts(clients);
                    let (mut all, mut made) = (Vec::new(), Vec::new());
                    for (client, part) in parts.iter().enumerate() {
                        all.push(match task {
                            Task::Read => Work::ReadAll { directory: within(arena, root, part) },
                            Task::Write => {
                                let (there, path) = in_mount(arena, entrant, root);
                                made.push(there);
                                let bytes = arena.sizes.medium / clients as u64;
                                let block = LARGE_BLOCK as usize;
                                Work::Write { path, bytes, block, sync: false }
                            }
                            Task::Small => {
                                let (there, directory) = in_mount(arena, entrant, root);
                                made.push(there);
                                let share = share(arena.sizes.files, client, clients);
                                let (first, end) = (share.start, share.end);
                                Work::CreateFiles { directory, first, end }
                            }
                        });
                    }
                    let seconds = arena.work(&all)?;
                    made.iter().for_each(|path| scratch::remove(path));
                    Ok(match task {
                        Task::Small => arena.sizes.files as f64,
                        Task::Read => arena.sizes.large as f64 / 1e9,
                        Task::Write => arena.sizes.medium as f64 / 1e9,
                    } / seconds)
                })?;
            }
        }
        Ok(())
    }

    /// New mounts with empty caches, for all contenders that have one.
    fn remount(&mut self) -> Outcome {
        self.unmount()?;
        for at in 0..self.entrants.len() {
            let entrant = &self.entrants[at];
            let Some(contender) = entrant.contender.as_ref().filter(|_| entrant.mounts) else {
                continue;
            };
            let Some(label) = contender.label(Access::Mount) else { continue };
            let point = self.arena.mount_point(&entrant.key)?;
            let Some(command) = contender.mount(&point) else { continue };
            match Mounted::new(&self.arena.logs, &command, &point) {
                Ok(mounted) => self.entrants[at].mounted = Some(mounted),
                Err(failure) if failure.code == Code::Interrupted => return Err(failure),
                Err(failure) => {
                    self.entrants[at].mounts = false;
                    self.note(label, format!("{}: mounting: {failure}", label.name));
                }
            }
        }
        Ok(())
    }

    fn unmount(&mut self) -> Outcome {
        if self.entrants.iter().any(|entrant| entrant.mounted.is_some()) {
            // Some mounts send a file a moment after its close has returned, and lose it when
            // unmounted.
            process::pause(SETTLED)?;
        }
        for at in 0..self.entrants.len() {
            let entrant = &mut self.entrants[at];
            let label =
                entrant.contender.as_ref().and_then(|contender| contender.label(Access::Mount));
            let (Some(mounted), Some(label)) = (entrant.mounted.take(), label) else { continue };
            match mounted.end(&self.arena.logs) {
                Ok(()) => {}
                Err(failure) if failure.code == Code::Interrupted => return Err(failure),
                Err(failure) => {
                    self.entrants[at].mounts = false;
                    self.note(label, format!("{}: unmounting: {failure}", label.name));
                }
            }
        }
        Ok(())
    }
}

/// A path of the export through a mount.
fn within(arena: &Arena, root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(arena.export()).map_or_else(|_| path.to_owned(), |path| root.join(path))
}

/// A new path: at the server, and through a mount.
fn in_mount(arena: &Arena, entrant: &Entrant, root: &Path) -> (PathBuf, PathBuf) {
    let there = arena.target(&entrant.key);
    let here = within(arena, root, &there);
    (there, here)
}

/// The fewest, the middle and the most.
fn some(clients: &[usize]) -> Vec<usize> {
    let mut some = vec![clients[0], clients[clients.len() / 2], clients[clients.len() - 1]];
    some.dedup();
    some
}
