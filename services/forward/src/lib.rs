//! I/O forwarding: a few processes do the input and output of many. A server exports a directory or
//! a bucket, clients use its files as if they were their own, and large data moves by remote memory
//! access, which the server begins.
//!
//! **Serve** a [`Storage`](storage::Storage): the local file system, an object store, or one of
//! yours ([`server`]). Clients have the rights of the server's process; their paths never lead out
//! of what is exported.
//!
//! ```no_run
//! # use {petasos::OpenOptions, std::sync::Arc};
//! use petasos_forward::{server::{Server, ServerConfig}, storage::Local};
//!
//! let storage = Arc::new(Local::open("/scratch/project".as_ref())?);
//! let urls = ["shm://*", "tcp://127.0.0.1:7000"];
//! let server = Server::listen(storage, &urls, &OpenOptions::default(), ServerConfig::default())?;
//! std::thread::park(); // Until the server is dropped.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Use its files** by calls like those of POSIX, asynchronous ([`client`]). Whole files and trees
//! are [moved](transfer) in parallel, and from where an earlier transfer was interrupted.
//!
//! ```no_run
//! # use petasos::{Engine, EngineConfig, OpenOptions, fabric::Address};
//! use petasos_forward::{RelPath, client::{ConnectOptions, Remote}};
//!
//! let endpoint = petasos::open("tcp://127.0.0.1:0", &OpenOptions::default())?;
//! let engine = Engine::new(endpoint, EngineConfig::default());
//! let server = Address::parse("tcp://127.0.0.1:7000")?;
//! engine.block_on(async {
//!     let remote = Remote::connect(&engine, &server, ConnectOptions::default()).await?;
//!     println!("{} bytes", remote.stat(&RelPath::parse(b"input.dat")?, true).await?.size);
//!     Ok(())
//! })
//! # .map_err(|error: Box<dyn std::error::Error>| error)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Mount it**, for programs that know nothing of all this ([`mount`], through FUSE).
//!
//! ```no_run
//! # #[cfg(feature = "mount")] {
//! # use {petasos::{OpenOptions, fabric::Address}, std::time::Duration};
//! use petasos_forward::mount::{MountOptions, Mounted};
//!
//! let endpoint = petasos::open("tcp://127.0.0.1:0", &OpenOptions::default())?;
//! let server = Address::parse("tcp://127.0.0.1:7000")?;
//! let mounted = Mounted::new(endpoint, &server, "/mnt".as_ref(), MountOptions::default())?;
//! while !mounted.wait(Duration::from_secs(3600)) {} // Until it is unmounted.
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A session is a client's life at the server: when it ends, whatever the reason, its files are
//! closed, its locks are free, and what it had not finished never gets its final name.
//!
//! # How it works
//!
//! ```text
//!    commands: put, get, ls, sync ...     mount (FUSE)
//!                  |                         |
//!              transfer                      |    whole files and trees; resumed where it stopped
//!                  \_________   _____________/
//!                            client                calls like those of POSIX, asynchronous
//!                               |   protocol       one interface; data in the call, or lent
//!                            server                sessions, locks, fair queues, bounded memory
//!                               |
//!                            storage               a plug-in: local file system, object store
//! ```
//!
//! * **A session** begins with a call (`hold`) that is never answered, and that shows a ticket from
//!   the answer to the client's hello, of which the server keeps nothing. When the client dies
//!   or gives that call up, the engine drops the handler's future, and with it everything the
//!   session had. No heartbeat: the transport knows of deaths. Only where locks are to be taken
//!   from clients that are stopped does the server give leases.
//! * **Work on files blocks**, so a pool of threads does it, and engines never wait. Each session
//!   has a queue of its own, and the pool takes from them in turn, by bytes. What is in the page
//!   cache is read at once, without a thread. Of the calls that are served, and of the blocks on
//!   the way, each client has its share.
//! * **Large data is lent** by the client, and the server moves it block by block, several at a
//!   time, while others go to the disk. Blocks come out of one budget, of which no session gets
//!   more than its share.
//! * **A file gets its name when it is complete.** What is sent is staged where no client sees it,
//!   under a key that the client makes of what it sends; after a crash of either side the client
//!   names the key again, compares hashes of what is there, and sends the rest. Publishing is one
//!   rename.
//! * **Paths are checked twice**: as text where they enter, into a type that cannot lead up, and by
//!   the kernel when they are resolved, beneath the root of the export and nowhere else
//!   (`openat2`).

#![warn(clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

pub mod client;
pub mod descriptors;
mod error;
#[cfg(feature = "mount")]
pub mod mount;
mod path;
pub mod protocol;
mod semaphore;
pub mod server;
pub mod storage;
mod threads;
mod timer;
pub mod transfer;

pub use error::{FsError, FsResult};
pub use path::{PathError, RelPath};
