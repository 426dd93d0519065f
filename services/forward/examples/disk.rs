//! What does the server's work on files better: threads, or io_uring?
//!
//! One thread, as that of an engine, has blocks of a file read or written, so many at a time, and
//! waits until one is done: by threads that take work from a queue, as the server has it, by one
//! io_uring, or itself, without help. The file is in the page cache, as what clients use mostly is.
//!
//!     cargo run --profile dist -p petasos-forward --example disk [DIRECTORY]

use io_uring::{IoUring, opcode, types};
use std::{
    collections::VecDeque,
    env,
    error::Error,
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Bytes of the file.
const FILE: u64 = 128 << 20;

/// How long one figure is measured at a time, and how often; the median is shown.
const TIME: Duration = Duration::from_millis(150);
const ROUNDS: usize = 5;

/// Threads of the pool: the server's default on two processors.
const THREADS: usize = 4;

#[derive(Clone, Copy)]
enum Doing {
    Read,
    Write,
}

/// Reads or writes blocks of a file.
trait Disk {
    /// Begins with the block at `offset`, in memory number `slot`.
    fn begin(&mut self, slot: usize, offset: u64) -> io::Result<()>;
    /// Waits until some are done, and says which.
    fn wait(&mut self, done: &mut Vec<usize>) -> io::Result<()>;
}

/// What blocks are done with: the same for all.
struct Task {
    file: Arc<File>,
    doing: Doing,
    block: usize,
}

impl Task {
    fn run(&self, memory: &mut [u8], offset: u64) -> io::Result<()> {
        match self.doing {
            Doing::Read => self.file.read_exact_at(memory, offset),
            Doing::Write => self.file.write_all_at(memory, offset),
        }
    }
}

/// The thread itself.
struct Own {
    task: Task,
    memory: Vec<u8>,
    done: Vec<usize>,
}

impl Disk for Own {
    fn begin(&mut self, slot: usize, offset: u64) -> io::Result<()> {
        self.done.push(slot);
        self.task.run(&mut self.memory, offset)
    }

    fn wait(&mut self, done: &mut Vec<usize>) -> io::Result<()> {
        done.append(&mut self.done);
        Ok(())
    }
}

/// Work that waits for threads; none any more: they end.
type Queue = (Mutex<Option<VecDeque<(usize, u64)>>>, Condvar);

struct Pool {
    queue: Arc<Queue>,
    done: mpsc::Receiver<(usize, io::Result<()>)>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Pool {
    fn new(task: Task, depth: usize) -> Pool {
        let queue = Arc::new((Mutex::new(Some(VecDeque::new())), Condvar::new()));
        let (sender, done) = mpsc::channel();
        let task = Arc::new(task);
        let memory: Arc<Vec<_>> =
            Arc::new((0..depth).map(|_| Mutex::new(vec![1; task.block])).collect());
        let serve = || {
            let (queue, sender) = (Arc::clone(&queue), sender.clone());
            let (task, memory) = (Arc::clone(&task), Arc::clone(&memory));
            thread::spawn(move || {
                while let Some((slot, offset)) = next(&queue) {
                    let memory = &mut *memory[slot].lock().expect("no thread panics with it");
                    let _ = sender.send((slot, task.run(memory, offset)));
                }
            })
        };
        let threads = (0..THREADS).map(|_| serve()).collect();
        Pool { queue, done, threads }
    }
}

fn next((queue, wake): &Queue) -> Option<(usize, u64)> {
    let mut queue = queue.lock().expect("no thread panics with it");
    loop {
        match queue.as_mut()?.pop_front() {
            Some(work) => return Some(work),
            None => queue = wake.wait(queue).expect("no thread panics with it"),
        }
    }
}

impl Disk for Pool {
    fn begin(&mut self, slot: usize, offset: u64) -> io::Result<()> {
        let (queue, wake) = &*self.queue;
        let mut queue = queue.lock().expect("no thread panics with it");
        queue.as_mut().expect("it has not ended").push_back((slot, offset));
        wake.notify_one();
        Ok(())
    }

    fn wait(&mut self, done: &mut Vec<usize>) -> io::Result<()> {
        let first = self.done.recv().map_err(io::Error::other)?;
        for (slot, result) in std::iter::once(first).chain(self.done.try_iter()) {
            result?;
            done.push(slot);
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Ok(mut queue) = self.queue.0.lock() {
            queue.take();
        }
        self.queue.1.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Ring {
    ring: IoUring,
    task: Task,
    memory: Vec<Vec<u8>>,
    under_way: usize,
}

impl Ring {
    fn new(task: Task, depth: usize) -> io::Result<Ring> {
        let ring = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(64)?;
        let memory = (0..depth).map(|_| vec![1; task.block]).collect();
        Ok(Ring { ring, task, memory, under_way: 0 })
    }
}

impl Disk for Ring {
    fn begin(&mut self, slot: usize, offset: u64) -> io::Result<()> {
        let (memory, file) = (&mut self.memory[slot], types::Fd(self.task.file.as_raw_fd()));
        let entry = match self.task.doing {
            Doing::Read => {
                let (to, len) = (memory.as_mut_ptr(), memory.len() as u32);
                opcode::Read::new(file, to, len).offset(offset).build()
            }
            Doing::Write => {
                let (from, len) = (memory.as_ptr(), memory.len() as u32);
                opcode::Write::new(file, from, len).offset(offset).build()
            }
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the memory and the file live as long as `self`, which waits in `drop` for all
        // that is under way; a slot is not begun again before it is done.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        self.under_way += 1;
        Ok(())
    }

    fn wait(&mut self, done: &mut Vec<usize>) -> io::Result<()> {
        self.ring.submit_and_wait(1)?;
        for completion in self.ring.completion() {
            self.under_way -= 1;
            match completion.result() {
                len if len == self.task.block as i32 => done.push(completion.user_data() as usize),
                len if len >= 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                errno => return Err(io::Error::from_raw_os_error(-errno)),
            }
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.under_way > 0 {
            self.ring.submit_and_wait(1).expect("what is under way must not be left alone");
            self.under_way -= self.ring.completion().count();
        }
    }
}

/// Gigabytes a second, and how many microseconds of processors a block takes.
fn measure(disk: &mut dyn Disk, depth: usize, block: usize) -> io::Result<(f64, f64)> {
    let (mut free, mut next, mut blocks) = ((0..depth).collect::<Vec<_>>(), 0, 0);
    let (begin, spent) = (Instant::now(), processor_time());
    while begin.elapsed() < TIME {
        for slot in free.drain(..) {
            disk.begin(slot, next)?;
            next = (next + block as u64) % FILE;
        }
        disk.wait(&mut free)?;
        blocks += free.len();
    }
    let seconds = begin.elapsed().as_secs_f64();
    let spent = processor_time().saturating_sub(spent);
    while free.len() < depth {
        disk.wait(&mut free)?;
    }
    let blocks = blocks as f64;
    Ok((blocks * block as f64 / 1e9 / seconds, spent.as_secs_f64() * 1e6 / blocks))
}

/// What all threads of this process have used, those of the kernel that work for it among them.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::args_os().nth(1).map_or_else(env::temp_dir, PathBuf::from);
    let file = Arc::new(tempfile::tempfile_in(&directory)?);
    (0..FILE >> 20).try_for_each(|at| file.write_all_at(&vec![1; 1 << 20], at << 20))?;
    println!("GB/s and microseconds of processors for a block, in {}", directory.display());
    println!("{:32}{:>18}{:>18}{:>18}", "", "this thread", "threads", "io_uring");
    for doing in [Doing::Read, Doing::Write] {
        for block in [4 << 10, 64 << 10, 1 << 20] {
            for depth in [1, 16] {
                let verb = if let Doing::Read = doing { "read" } else { "write" };
                print!("{:32}", format!("{verb}, {} KiB, {depth} at a time", block >> 10));
                let task = || Task { file: Arc::clone(&file), doing, block };
                let mut figures = [const { Vec::new() }; 3];
                for _ in 0..ROUNDS {
                    let own = Own { task: task(), memory: vec![1; block], done: Vec::new() };
                    let all: [Box<dyn Disk>; 3] = [
                        Box::new(own),
                        Box::new(Pool::new(task(), depth)),
                        Box::new(Ring::new(task(), depth)?),
                    ];
                    for (mut disk, figures) in all.into_iter().zip(&mut figures) {
                        figures.push(measure(&mut *disk, depth, block)?);
                    }
                }
                for mut figures in figures {
                    figures.sort_by(|one, other| one.0.total_cmp(&other.0));
                    let (rate, time) = figures[ROUNDS / 2];
                    print!("{:>18}", format!("{rate:.2} ({time:.1})"));
                }
                println!();
            }
        }
    }
    Ok(())
}
