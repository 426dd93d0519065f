//! `petasos run --provider`: the ranks' MPI is to go over the provider for libfabric. Where it is
//! seen that it cannot, it is said.

use super::libraries;
use crate::{commands::provider, exit::Outcome};
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The longest library that is looked through, in bytes.
const LONGEST: u64 = 256 << 20;
/// The name of a setting in libfabric itself, by which a copy of it within another library is seen.
const WITHIN: &[u8] = b"\0provider_path\0";
/// The name of a setting of Intel MPI, which loads libfabric when it begins.
const LOADED: &[u8] = b"I_MPI_OFI_LIBRARY\0";
/// The library of Open MPI, and its part for libfabric, which is a file of its own or within it.
const OPEN_MPI: &str = "libmpi.so.40";
const PART: &str = "mca_mtl_ofi";
/// Those of MPICH and its descendants.
const MPICH: [&str; 3] = ["libmpich.so", "libmpi.so.12", "libmpi_abi.so"];

/// The variables for the ranks, but those that the user has given.
pub(super) fn variables(given: &[(String, String)]) -> Outcome<Vec<(String, String)>> {
    let all = provider::variables(&provider::folder()?)?.into_iter();
    let own = all.filter(|(name, _)| !given.iter().any(|(of, _)| of == name));
    Ok(own.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Why the MPI of this program does not use libfabric, if it has one that does not.
pub(super) fn unused(program: &str, path: Option<&str>) -> Option<String> {
    let libraries = libraries::of(&found(program, path)?)?;
    let named = |name: &str| libraries.iter().find(|library| library.name.starts_with(name));
    if named("libfabric.so").is_some() {
        return None;
    }
    let place = |library: &libraries::Library| Some(PathBuf::from(library.path.as_ref()?));
    if let Some(library) = named(OPEN_MPI).and_then(place) {
        return (!open_mpi_has(&library)).then(|| {
            let library = library.display();
            format!("{library} has no part for libfabric ({PART}), so it uses something else")
        });
    }
    let library = MPICH.iter().find_map(|name| named(name)).and_then(place)?;
    (!contains(&library, WITHIN) && !contains(&library, LOADED)).then(|| {
        let other = if named("libucp.so").is_some() { "UCX" } else { "something else" };
        format!("{} was built without libfabric, and uses {other}", library.display())
    })
}

/// Whether this Open MPI has libfabric: in its folder for parts, or in itself.
fn open_mpi_has(library: &Path) -> bool {
    let whole = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    let Some(folder) = whole.parent() else { return false };
    // Of Debian they are in openmpi/lib/openmpi3, of a build of one's own in openmpi.
    let folders = ["openmpi", "openmpi/lib/openmpi3", "openmpi/lib/openmpi"];
    let file = format!("{PART}.so");
    folders.iter().any(|name| folder.join(name).join(&file).is_file())
        || contains(&whole, PART.as_bytes())
}

/// Whether a file has these bytes; one that cannot be read has all.
fn contains(file: &Path, bytes: &[u8]) -> bool {
    let short = fs::metadata(file).is_ok_and(|found| found.len() <= LONGEST);
    let all = short.then(|| fs::read(file).ok()).flatten();
    all.is_none_or(|all| all.windows(bytes.len()).any(|window| window == bytes))
}

/// Where a program is, as a shell would look for it.
fn found(program: &str, path: Option<&str>) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let path = path.map(Into::into).or_else(|| env::var_os("PATH"))?;
    env::split_paths(&path).map(|at| at.join(program)).find(|at| at.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_no_mpi_is_none_of_our_business() {
        assert_eq!(unused("sh", None), None);
        assert_eq!(unused("/bin/no-such-program", None), None);
    }

    #[test]
    fn an_open_mpi_without_its_part_for_libfabric() {
        let place = tempfile::tempdir().unwrap();
        let library = place.path().join(OPEN_MPI);
        fs::write(&library, "nothing of that").unwrap();
        assert!(!open_mpi_has(&library));
        fs::create_dir(place.path().join("openmpi")).unwrap();
        fs::write(place.path().join("openmpi/mca_mtl_ofi.so"), "").unwrap();
        assert!(open_mpi_has(&library));
        fs::remove_dir_all(place.path().join("openmpi")).unwrap();
        fs::write(&library, "\0mca_mtl_ofi_component\0").unwrap();
        assert!(open_mpi_has(&library));
    }
}
