//! What processes are to be: a program that was found, its arguments and its environment, in the
//! form in which the system takes them. All of it is put together before there is a process, which
//! then only hands it over.

use nix::libc::c_char;
use rustix::fs::{Access, access};
use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr, OsString},
    fs,
    io::{self, ErrorKind, Read},
    iter,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    ptr,
};

/// Where programs are if nothing says so.
const USUAL_PATH: &str = "/bin:/usr/bin";
/// So much of a script's first line is looked at by the system.
const LONGEST_LINE: u64 = 256;
/// What runs a program whose format the system does not know: as with `execvp`, that is a script.
const SHELL: &std::ffi::CStr = c"/bin/sh";

/// What a process becomes.
#[derive(Debug)]
pub(crate) struct Image {
    path: CString,
    /// The first is the program's name, as it was given.
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// Where it begins, if not where this process is.
    directory: Option<CString>,
}

/// Arguments and environment as the system takes them; they point into an [`Image`].
#[derive(Debug)]
pub(crate) struct Pointers {
    pub(crate) arguments: Vec<*const c_char>,
    /// The same as a script.
    pub(crate) script: Vec<*const c_char>,
    pub(crate) environment: Vec<*const c_char>,
}

impl Image {
    /// Finds the program as a shell does: by its path, or in one of the directories of `search`.
    /// Relative ones are meant from `directory`, where it is to run.
    ///
    /// # Errors
    /// If there is no such program, or it must not be run, or if words have a NUL in them.
    pub(crate) fn new(
        words: &[String],
        environment: &BTreeMap<OsString, OsString>,
        directory: Option<&str>,
    ) -> io::Result<Image> {
        let name = words.first().map_or("", String::as_str);
        let search = environment.get(OsStr::new("PATH"));
        let path = find(name, search.map(OsString::as_os_str), directory.unwrap_or("").as_ref())?;
        let arguments = words.iter().map(|word| CString::new(word.as_str()));
        Ok(Image {
            path: CString::new(path.into_os_string().into_vec())?,
            arguments: arguments.collect::<Result<_, _>>()?,
            environment: environment
                .iter()
                .map(|(name, value)| variable(name, value))
                .collect::<io::Result<_>>()?,
            directory: directory.map(CString::new).transpose()?,
        })
    }

    pub(crate) fn path(&self) -> &std::ffi::CStr {
        &self.path
    }

    pub(crate) fn directory(&self) -> Option<&std::ffi::CStr> {
        self.directory.as_deref()
    }

    pub(crate) fn shell(&self) -> &'static std::ffi::CStr {
        SHELL
    }

    /// With these variables besides its own, which are not to be among those.
    pub(crate) fn pointers(&self, variables: &[CString]) -> Pointers {
        let end = || iter::once(ptr::null());
        let words = || self.arguments.iter().map(|word| word.as_ptr());
        let script = [SHELL.as_ptr(), self.path.as_ptr()].into_iter();
        let environment = self.environment.iter().chain(variables);
        Pointers {
            arguments: words().chain(end()).collect(),
            script: script.chain(words().skip(1)).chain(end()).collect(),
            environment: environment.map(|variable| variable.as_ptr()).chain(end()).collect(),
        }
    }
}

/// A variable as a process finds it.
///
/// # Errors
/// If there is a NUL in it.
pub(crate) fn variable(name: &OsStr, value: &OsStr) -> io::Result<CString> {
    let mut text = name.to_owned();
    text.push("=");
    text.push(value);
    Ok(CString::new(text.into_vec())?)
}

/// Why a program could not be started, from this directory: what it lacks, if that can be seen.
pub(crate) fn why_not(
    name: &str,
    search: Option<&OsStr>,
    directory: &Path,
    error: &io::Error,
) -> String {
    let found = find(name, search, directory);
    let seen = match &found {
        Ok(program) => directory.join(program),
        Err(_) => directory.join(name),
    };
    if seen.is_dir() && (found.is_err() || name.contains('/')) {
        return format!("{name}: this is a directory, and no program");
    }
    if error.kind() != ErrorKind::NotFound {
        return format!("{name}: {error}");
    }
    match needs(&seen).filter(|_| found.is_ok()) {
        Some(interpreter) if !directory.join(&interpreter).exists() => {
            let interpreter = interpreter.display();
            format!("{name}: what it is run by is not there: {interpreter}")
        }
        _ => format!("{name}: there is no such program"),
    }
}

/// By what the system runs a program: a script by what its first line names, others by their
/// loader.
fn needs(program: &Path) -> Option<PathBuf> {
    let mut first = Vec::new();
    fs::File::open(program).ok()?.take(LONGEST_LINE).read_to_end(&mut first).ok()?;
    let Some(line) = first.strip_prefix(b"#!") else { return super::elf::loader(program) };
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    (end > 0).then(|| OsStr::from_bytes(&line[..end]).into())
}

/// Where a program of this name is, seen from this directory.
pub(crate) fn find(name: &str, search: Option<&OsStr>, directory: &Path) -> io::Result<PathBuf> {
    if name.contains('/') {
        return Ok(name.into());
    }
    let search = search.unwrap_or(OsStr::new(USUAL_PATH));
    let mut refused = ErrorKind::NotFound;
    for at in std::env::split_paths(search).filter(|_| !name.is_empty()) {
        // From its own directory, a name alone would be looked for again.
        let program = Path::new(".").join(at).join(name);
        let seen = directory.join(&program);
        if !seen.is_file() {
            continue;
        }
        if access(&seen, Access::EXEC_OK).is_ok() {
            return Ok(program);
        }
        refused = ErrorKind::PermissionDenied;
    }
    Err(refused.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let place = tempfile::tempdir().unwrap();
        for (path, mode) in [("a/one", 0o644), ("b/one", 0o755), ("a/two", 0o644)] {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(place.path().join("a/b")).unwrap();
        let search = |name| {
            let found = find(name, Some(OsStr::new("none:a:b")), place.path());
            found.map(|path| place.path().join(path)).map_err(|error| error.kind())
        };
        assert_eq!(search("one").unwrap(), place.path().join("./b/one"));
        // A superuser may run what any user may run, and none may run this.
        assert_eq!(search("two"), Err(ErrorKind::PermissionDenied));
        // A directory is no program.
        assert_eq!(search("b"), Err(ErrorKind::NotFound));
        assert_eq!(search("three"), Err(ErrorKind::NotFound));
        assert_eq!(search(""), Err(ErrorKind::NotFound));
        assert_eq!(search("a/two").unwrap(), place.path().join("a/two"));
        assert_eq!(find("sh", None, Path::new("/")).unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn what_the_system_cannot_take_is_an_error() {
        let none = BTreeMap::new();
        let words = ["/bin/true".to_owned(), "a\0b".to_owned()];
        let error = Image::new(&words, &none, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let wrong = BTreeMap::from([("NAME".into(), "a\0b".into())]);
        let error = Image::new(&words[..1], &wrong, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
