//! How to mount.

use super::MountError;
use crate::RelPath;
use fuser::MountOption;
use rustix::mount::MountFlags;
use std::time::Duration;

/// How to mount.
///
/// ```
/// use petasos_forward::{RelPath, mount::{Cache, MountOptions}};
///
/// let mut options = MountOptions::default();
/// options.path = RelPath::parse(b"results")?;
/// options.allow_other = true;
/// // Two machines that talk about what they write see it at once.
/// options.cache = Cache::None;
/// // As of `mount -o`.
/// options.system_option("noexec")?;
/// assert!(options.system_option("no such option").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MountOptions {
    /// What of the export. Default: all of it.
    pub path: RelPath,
    /// Whether nothing can be changed through this mount.
    pub read_only: bool,
    /// Whether other users than the one that mounts may use it.
    pub allow_other: bool,
    /// What is kept here of files, and for how long.
    pub cache: Cache,
    /// For how long attributes and names that were found are taken for true. Default: 1 s.
    pub attr_timeout: Duration,
    /// For how long a name that was not found is taken for missing. Default: 250 ms.
    pub negative_timeout: Duration,
    /// The time limit of one operation at the server; what takes longer fails with `EIO`.
    /// Default: 30 s.
    pub timeout: Duration,
    /// Bytes that were written here and are not at the server yet, at most, before writing waits.
    /// Default: 64 MiB.
    pub write_behind: usize,
    /// Bytes that the kernel reads ahead of a sequential reader, where this process may set that:
    /// root may. Else it reads less, and the mount does it. Zero: neither does. Default: 4 MiB.
    pub read_ahead: usize,
    /// For how long the mount's thread looks for more to do before it sleeps. Others that want the
    /// processor get it meanwhile. Default: 100 µs.
    pub spin: Duration,
    /// What tables of mounts show as the source.
    pub source: String,
    /// Options of the system's, from [`MountOptions::system_option`].
    system: Vec<MountOption>,
}

/// What is kept here of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cache {
    /// Nothing: each read and each write goes to the server, and waits for it. Names and attributes
    /// are looked up each time.
    None,
    /// What was closed elsewhere is seen at the next opening here.
    #[default]
    Close,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            path: RelPath::root(),
            read_only: false,
            allow_other: false,
            cache: Cache::default(),
            attr_timeout: Duration::from_secs(1),
            negative_timeout: Duration::from_millis(250),
            timeout: Duration::from_secs(30),
            write_behind: 64 << 20,
            read_ahead: 4 << 20,
            spin: Duration::from_micros(100),
            source: "petasos".to_owned(),
            system: Vec::new(),
        }
    }
}

impl MountOptions {
    /// Adds an option as `mount -o` has it: `ro`, `allow_other`, `noexec`, `nosuid`, `nodev`,
    /// `noatime`, `sync`, `dirsync` and their opposites, `fsname=NAME`.
    ///
    /// # Errors
    /// [`MountError::Option`] if there is no such option.
    pub fn system_option(&mut self, option: &str) -> Result<(), MountError> {
        let system = match option {
            "ro" => {
                self.read_only = true;
                return Ok(());
            }
            "allow_other" => {
                self.allow_other = true;
                return Ok(());
            }
            // These hold without being asked for.
            "rw" | "default_permissions" => return Ok(()),
            "dev" => MountOption::Dev,
            "nodev" => MountOption::NoDev,
            "suid" => MountOption::Suid,
            "nosuid" => MountOption::NoSuid,
            "exec" => MountOption::Exec,
            "noexec" => MountOption::NoExec,
            "atime" => MountOption::Atime,
            "noatime" => MountOption::NoAtime,
            "sync" => MountOption::Sync,
            "async" => MountOption::Async,
            "dirsync" => MountOption::DirSync,
            _ => match option.strip_prefix("fsname=") {
                Some(name) => {
                    self.source = name.to_owned();
                    return Ok(());
                }
                None => return Err(MountError::Option(option.to_owned())),
            },
        };
        self.system.push(system);
        Ok(())
    }

    /// For the session with the kernel.
    pub(super) fn config(&self) -> fuser::Config {
        let mut config = fuser::Config::default();
        config.mount_options = self.system.clone();
        config.mount_options.extend([
            MountOption::FSName(self.source.replace(',', "_")),
            MountOption::Subtype("petasos".to_owned()),
            MountOption::DefaultPermissions,
        ]);
        if self.read_only {
            config.mount_options.push(MountOption::RO);
        }
        config.acl = match self.allow_other {
            true => fuser::SessionACL::All,
            false => fuser::SessionACL::Owner,
        };
        config
    }

    /// The same for the system call.
    pub(super) fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::NODEV | MountFlags::NOSUID;
        if self.read_only {
            flags |= MountFlags::RDONLY;
        }
        for option in &self.system {
            match option {
                MountOption::Dev => flags -= MountFlags::NODEV,
                MountOption::NoDev => flags |= MountFlags::NODEV,
                MountOption::Suid => flags -= MountFlags::NOSUID,
                MountOption::NoSuid => flags |= MountFlags::NOSUID,
                MountOption::Exec => flags -= MountFlags::NOEXEC,
                MountOption::NoExec => flags |= MountFlags::NOEXEC,
                MountOption::Atime => flags -= MountFlags::NOATIME,
                MountOption::NoAtime => flags |= MountFlags::NOATIME,
                MountOption::Sync => flags |= MountFlags::SYNCHRONOUS,
                MountOption::Async => flags -= MountFlags::SYNCHRONOUS,
                MountOption::DirSync => flags |= MountFlags::DIRSYNC,
                _ => {}
            }
        }
        flags
    }

    /// Whether to read ahead.
    pub(super) fn reads_ahead(&self) -> bool {
        self.cache == Cache::Close && self.read_ahead > 0
    }

    /// How long what was found holds.
    pub(super) fn attr_ttl(&self) -> Duration {
        match self.cache {
            Cache::None => Duration::ZERO,
            Cache::Close => self.attr_timeout,
        }
    }

    /// How long what was not found stays missing.
    pub(super) fn negative_ttl(&self) -> Duration {
        match self.cache {
            Cache::None => Duration::ZERO,
            Cache::Close => self.negative_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_system() {
        let mut options = MountOptions::default();
        for option in ["ro", "noexec", "fsname=a,b", "allow_other", "default_permissions"] {
            options.system_option(option).unwrap();
        }
        assert!(options.read_only && options.allow_other);
        let config = options.config();
        for option in [
            MountOption::RO,
            MountOption::NoExec,
            MountOption::DefaultPermissions,
            MountOption::FSName("a_b".to_owned()),
        ] {
            assert!(config.mount_options.contains(&option), "{option:?}");
        }
        assert_eq!(config.acl, fuser::SessionACL::All);
        let flags = MountFlags::RDONLY | MountFlags::NOEXEC;
        assert_eq!(options.flags(), flags | MountFlags::NODEV | MountFlags::NOSUID);
        options.system_option("dev").unwrap();
        assert!(!options.flags().contains(MountFlags::NODEV));
        let refused = options.system_option("nosuch").unwrap_err();
        assert!(matches!(refused, MountError::Option(name) if name == "nosuch"));
    }
}
