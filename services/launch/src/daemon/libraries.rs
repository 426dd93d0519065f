//! Which of some libraries a program needs, itself or through others: a program in Fortran asks
//! only for the library of its interface, which asks for that of the MPI. Libraries are looked for
//! as the loader does: where the files say it (`DT_RPATH`, `DT_RUNPATH`), in `LD_LIBRARY_PATH`, in
//! the loader's cache, and in the usual places.

use super::elf::wants;
use std::{
    collections::{BTreeSet, VecDeque},
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// Libraries that are looked at.
const MOST: usize = 512;
const CACHE: &str = "/etc/ld.so.cache";
/// Bytes of the cache that are read.
const MAX_CACHE: u64 = 16 << 20;
const USUAL: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// Libraries that need none of an MPI, and that most programs need.
const PLAIN: [&str; 9] = [
    "libc.so",
    "libm.so",
    "libdl.so",
    "librt.so",
    "libpthread.so",
    "libgcc_s.so",
    "libstdc++.so",
    "ld-linux",
    "libgfortran.so",
];

/// The first that `is` knows of the libraries that this program needs, those that it asks for
/// itself before those that they ask for. `more`: directories as in `LD_LIBRARY_PATH`; relative
/// ones are meant from `directory`.
pub(super) fn find<T>(
    program: &Path,
    more: &OsStr,
    directory: &Path,
    is: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    // An empty one between others is the directory itself.
    let more =
        Some(more).filter(|more| !more.is_empty()).into_iter().flat_map(std::env::split_paths);
    let more: Vec<PathBuf> = more.map(|path| directory.join(path)).collect();
    let mut cache = None;
    let mut seen = BTreeSet::new();
    let mut left = VecDeque::from([(program.to_owned(), Vec::new())]);
    while let Some((file, before)) = left.pop_front() {
        let Some(wants) = wants(&file) else { continue };
        if let Some(found) = wants.needed.iter().find_map(|name| is(name)) {
            return Some(found);
        }
        // What a program says of places holds for its libraries, too.
        let mut search: Vec<PathBuf> = wants.search.iter().flat_map(|s| places(s, &file)).collect();
        search.extend(before);
        for name in wants.needed {
            let plain = PLAIN.iter().any(|plain| name.starts_with(plain));
            if plain || seen.len() >= MOST || !seen.insert(name.clone()) {
                continue;
            }
            let at = match name.contains('/') {
                true => Some(directory.join(&name)),
                false => {
                    let named = search.iter().chain(&more).map(|place| place.join(&name));
                    let named = named.into_iter().find(|path| path.is_file());
                    named.or_else(|| in_system(&name, cache.get_or_insert_with(read_cache)))
                }
            };
            left.extend(at.map(|at| (at, search.clone())));
        }
    }
    None
}

/// The directories that a file names, some of them by its own.
fn places(text: &str, file: &Path) -> Vec<PathBuf> {
    let own = file.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let places = text.split(':').filter(|place| !place.is_empty());
    let places = places.map(|place| place.replace("${ORIGIN}", &own).replace("$ORIGIN", &own));
    places.map(PathBuf::from).collect()
}

fn in_system(name: &str, cache: &[u8]) -> Option<PathBuf> {
    let usual = USUAL.iter().map(|place| Path::new(place).join(name));
    let mut all = cached(cache, name).into_iter().chain(usual);
    // There may be one for another kind of processor.
    all.find(|path| wants(path).is_some())
}

fn read_cache() -> Vec<u8> {
    let small = fs::metadata(CACHE).is_ok_and(|about| about.len() <= MAX_CACHE);
    if small { fs::read(CACHE).unwrap_or_default() } else { Vec::new() }
}

/// Where libraries of this name are, as the loader's cache has it (`struct cache_file_new` of the C
/// library).
fn cached(cache: &[u8], name: &str) -> Vec<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    // Older ones begin with another table.
    let start = (0..cache.len()).step_by(4).find(|at| cache[*at..].starts_with(MAGIC));
    let Some(cache) = start.map(|at| &cache[at..]) else { return Vec::new() };
    let number = |at: usize| {
        let bytes = cache.get(at..)?.first_chunk().copied()?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    };
    let text = |at: usize| cache.get(at..)?.split(|byte| *byte == 0).next();
    let count = number(MAGIC.len()).unwrap_or_default().min(cache.len() / ENTRY);
    let entry = |nth: usize| {
        let at = HEADER + nth * ENTRY;
        let path = (text(number(at + 4)?)? == name.as_bytes()).then(|| number(at + 8))??;
        Some(PathBuf::from(String::from_utf8_lossy(text(path)?).into_owned()))
    };
    (0..count).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Builds a library, or a program, that needs these; `false`: there is no compiler.
    fn build(place: &Path, name: &str, needs: &[&str], more: &[&str]) -> bool {
        let source = place.join("source.c");
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let mut gcc = Command::new("gcc");
        gcc.arg("-o").arg(place.join(name)).arg(&source).arg("-Wl,--no-as-needed").args(more);
        if name.contains(".so") {
            gcc.args(["-shared", "-fPIC"])
                .arg(format!("-Wl,-soname,{}", Path::new(name).display()));
        }
        gcc.args(needs.iter().map(|need| place.join(need)));
        let built = gcc.arg("-Wl,--allow-shlib-undefined").output();
        built.is_ok_and(|output| output.status.success())
    }

    #[test]
    fn what_libraries_need_is_found_wherever_the_loader_finds_it() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        if !build(place, "libmpi_of_test.so", &[], &[]) {
            return petasos_testing::skip("gcc is not here");
        }
        let origin = "-Wl,-rpath,$ORIGIN";
        assert!(build(place, "libfort.so", &["libmpi_of_test.so"], &[]));
        assert!(build(place, "without", &["libfort.so"], &[]));
        assert!(build(place, "with", &["libfort.so"], &[origin]));
        assert!(build(place, "plain", &[], &[]));
        let wanted = |name: &str| name.starts_with("libmpi_of_test").then(|| name.to_owned());
        let look = |program: &str, more: &OsStr| find(&place.join(program), more, place, wanted);
        let found = Some("libmpi_of_test.so".to_owned());
        assert_eq!(look("with", OsStr::new("")), found);
        assert_eq!(look("without", OsStr::new("")), None);
        assert_eq!(look("without", place.as_os_str()), found);
        assert_eq!(look("without", OsStr::new(".")), found);
        assert_eq!(look("plain", place.as_os_str()), None);
        assert_eq!(look("source.c", place.as_os_str()), None);
        // Two that need each other.
        assert!(build(place, "libfort.so", &[], &[]));
        assert!(build(place, "libother.so", &["libfort.so"], &[]));
        assert!(build(place, "libfort.so", &["libother.so"], &[]));
        assert_eq!(look("with", OsStr::new("")), None);
    }

    #[test]
    fn the_cache_of_the_loader_is_understood_and_garbage_is_not_believed() {
        let cache = read_cache();
        if cache.is_empty() {
            return petasos_testing::skip("the loader has no cache here");
        }
        let found = cached(&cache, "libc.so.6");
        assert!(
            found.iter().any(|path| path.ends_with("libc.so.6") && path.is_file()),
            "{found:?}"
        );
        assert_eq!(cached(&cache, "libc.so"), [] as [PathBuf; 0]);
        let mut random = petasos_sim::Random::new(5);
        for _ in 0..100 {
            let mut bad = cache[..random.below(cache.len() as u64) as usize].to_vec();
            for _ in 0..16 {
                let at = 20 + random.below(400) as usize;
                if let Some(byte) = bad.get_mut(at) {
                    *byte = random.number() as u8;
                }
            }
            cached(&bad, "libc.so.6");
        }
    }
}
