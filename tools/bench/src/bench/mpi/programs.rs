//! The MPIs of this machine, and the ways that their messages can take.

use crate::{
    bench::{
        forward::TIED,
        launch::{Ran, ran_within},
    },
    exit::{Code, Failure, Outcome},
    scratch::Scratch,
};
use serde::Serialize;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The program that is measured.
const SOURCE: &str = include_str!("mpi.c");
/// A run that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// The compilers, by the names that they have in packages.
const COMPILERS: [&str; 3] = ["mpicc.mpich", "mpicc.openmpi", "mpicc"];
/// Where `scripts/mpi` puts others, from where this program was built.
const FETCHED: [&str; 2] = ["mpi/mpich/bin/mpicc", "mpi/openmpi/bin/mpicc"];

/// What to do for an MPI.
const HOW: &str = "packages libmpich-dev and mpich, or libopenmpi-dev and openmpi-bin; from the \
                   source tree `scripts/mpi` fetches MPICH 5 and Open MPI 5; or --mpicc PROGRAM";

/// Variables by which an MPI chooses: none of them is the user's while this measures.
const CHOICES: [&str; 8] = [
    "FI_PROVIDER_PATH",
    "FI_PROVIDER",
    "MPIR_CVAR_CH4_NETMOD",
    "MPIR_CVAR_NOLOCAL",
    "OMPI_MCA_pml",
    "OMPI_MCA_mtl",
    "OMPI_MCA_mtl_ofi_provider_include",
    "OMPI_MCA_btl",
];

/// How messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    /// The provider, by `petasos run --provider`.
    Petasos,
    /// What the MPI does where nothing is said.
    Own,
    /// libfabric's provider for TCP, on the loopback interface.
    LibfabricTcp,
    /// That for shared memory.
    LibfabricShm,
}

impl Way {
    const ALL: [Way; 4] = [Way::Petasos, Way::Own, Way::LibfabricTcp, Way::LibfabricShm];

    /// In tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Petasos => "petasos",
            Way::Own => "the MPI's own",
            Way::LibfabricTcp => "libfabric tcp",
            Way::LibfabricShm => "libfabric shm",
        }
    }

    /// The provider that is named to libfabric.
    fn provider(self) -> Option<&'static str> {
        match self {
            Way::Petasos | Way::Own => None,
            Way::LibfabricTcp => Some("tcp"),
            Way::LibfabricShm => Some("shm"),
        }
    }
}

/// An MPI, with the program compiled.
pub(super) struct Mpi {
    /// Its compiler, as it was found.
    pub(super) name: String,
    pub(super) ways: Vec<Way>,
    own: PathBuf,
    program: PathBuf,
    directory: PathBuf,
}

/// What a run has printed: nanoseconds one way, and bytes in a nanosecond, by size.
pub(super) struct Measured {
    pub(super) library: String,
    pub(super) latency: Vec<f64>,
    pub(super) bandwidth: Vec<f64>,
}

/// The command of this program, to which arguments of `petasos` come.
fn petasos(own: &Path) -> Command {
    let mut command = Command::new(own);
    command.arg(crate::COMMAND);
    for name in CHOICES {
        command.env_remove(name);
    }
    // Open MPI does not like to be run by root.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command
}

fn own() -> Outcome<PathBuf> {
    env::current_exe().map_err(Failure::system("finding this program"))
}

/// The provider has to be here.
pub(super) fn require_provider(scratch: &Scratch) -> Outcome {
    let mut command = petasos(&own()?);
    command.args(["provider", "--print-path"]).stdin(Stdio::null()).current_dir(scratch.path());
    let output = command.output().map_err(Failure::system("looking for the provider"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("petasos: ");
    Err(Failure::new(Code::Unavailable, said.lines().next().unwrap_or("there is no provider"))
        .advise("scripts/provider builds it; `petasos provider` says where it is looked for"))
}

/// The MPIs that are here; of those that are not it is said in `skipped`.
pub(super) fn find(
    given: &[PathBuf],
    scratch: &Scratch,
    skipped: &mut Vec<String>,
) -> Outcome<Vec<Mpi>> {
    let own = own()?;
    let mut compilers: Vec<PathBuf> = given.to_vec();
    if given.is_empty() {
        let path = env::var_os("PATH").unwrap_or_default();
        let in_path =
            |name: &str| env::split_paths(&path).map(|at| at.join(name)).find(|at| at.is_file());
        compilers.extend(COMPILERS.iter().filter_map(|name| in_path(name)));
        let target = own.parent().and_then(Path::parent);
        let fetched = target.into_iter().flat_map(|at| FETCHED.map(|name| at.join(name)));
        compilers.extend(fetched.filter(|at| at.is_file()));
    }
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for compiler in compilers {
        // One package may have several names, and of a name given it is said what is wrong.
        let whole = compiler.canonicalize().unwrap_or_else(|_| compiler.clone());
        if seen.contains(&whole) {
            continue;
        }
        seen.push(whole);
        let directory = scratch.directory(&format!("mpi-{}", seen.len()))?;
        match Mpi::compile(&compiler, &own, directory) {
            Ok(mpi) => found.push(mpi),
            Err(why) => skipped.push(format!("{}: {why}", compiler.display())),
        }
    }
    for mpi in &mut found {
        if let Some(why) = mpi.unused()? {
            mpi.ways = vec![Way::Own];
            skipped.push(format!("{}, over libfabric: {why}", mpi.name));
        }
    }
    if found.is_empty() {
        let text = match skipped.is_empty() {
            true => "no compiler of an MPI (mpicc) is here".to_owned(),
            false => format!("no MPI works here: {}", skipped.join("; ")),
        };
        return Err(Failure::new(Code::Unavailable, text).advise(HOW));
    }
    Ok(found)
}

impl Mpi {
    fn compile(compiler: &Path, own: &Path, directory: PathBuf) -> Result<Mpi, String> {
        let (source, program) = (directory.join("mpi.c"), directory.join("mpi"));
        fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
        let mut command = Command::new(compiler);
        command.arg("-O2").arg("-o").args([&program, &source]).stdin(Stdio::null());
        let built = command.output().map_err(|error| error.to_string())?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr).trim().to_owned();
            return Err(format!("it compiles nothing: {said}"));
        }
        let (name, ways) = (compiler.display().to_string(), Way::ALL.to_vec());
        Ok(Mpi { name, ways, own: own.to_owned(), program, directory })
    }

    /// Why this MPI cannot use the provider, if that is seen.
    fn unused(&self) -> Outcome<Option<String>> {
        let mut command = petasos(&self.own);
        command.args(["run", "-n", "2", "--provider", "--dry-run"]).arg(&self.program);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(Failure::system("looking at the program"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let marker = "the provider is not used: ";
        Ok(said.lines().find_map(|line| Some(line.split_once(marker)?.1.to_owned())))
    }

    /// A run of the program by this way.
    pub(super) fn measured(&self, way: Way, sizes: &[u64], batch: u32) -> Result<Measured, String> {
        let mut command = Command::new(&self.own);
        // Tied to this process, so that nothing goes on when it has ended.
        command.args([TIED, &std::process::id().to_string()]).arg(&self.own).arg(crate::COMMAND);
        for (name, value) in petasos(&self.own).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["run", "-n", "2", "--bind", "core"]);
        if way == Way::Petasos {
            command.arg("--provider");
        }
        if let Some(provider) = way.provider() {
            command.envs([
                ("FI_PROVIDER", provider),
                ("MPIR_CVAR_CH4_NETMOD", "ofi"),
                ("MPIR_CVAR_NOLOCAL", "1"),
                ("OMPI_MCA_pml", "cm"),
                ("OMPI_MCA_mtl", "ofi"),
                ("OMPI_MCA_mtl_ofi_provider_include", provider),
            ]);
        }
        command.arg(&self.program).arg(batch.to_string());
        command.args(sizes.iter().map(u64::to_string));
        let Ran { out, .. } = ran_within(&self.directory, PATIENCE, &mut command)?;
        let measured = parse(&out, sizes)?;
        let over = out.lines().any(|line| line == "provider 1");
        match over == (way == Way::Petasos) {
            true => Ok(measured),
            false if over => Err("it went over the provider".to_owned()),
            false => Err("it did not go over the provider".to_owned()),
        }
    }
}

/// What rank 0 has printed, for all sizes.
fn parse(out: &str, sizes: &[u64]) -> Result<Measured, String> {
    let of = |key: &str| -> Result<Vec<f64>, String> {
        let value = |size: &u64| {
            let begin = format!("{key} {size} ");
            let line = out.lines().find_map(|line| line.strip_prefix(&begin));
            let value = line.and_then(|text| text.parse().ok()).filter(|value: &f64| *value > 0.0);
            value.ok_or_else(|| format!("it printed no {key} of {size} bytes"))
        };
        sizes.iter().map(value).collect()
    };
    let library = out.lines().find_map(|line| line.strip_prefix("library ")).unwrap_or("an MPI");
    // What follows a comma says how it was built.
    let name = library.split(',').next().unwrap_or(library);
    let words: Vec<&str> = name.split_whitespace().filter(|word| *word != "Version:").collect();
    Ok(Measured { library: words.join(" "), latency: of("latency")?, bandwidth: of("bandwidth")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rank_prints() {
        let out = "library MPICH Version:   5.0, of a date\nprovider 1\nlatency 8 512.5\nbandwidth 8 0.25\n";
        let measured = parse(out, &[8]).unwrap();
        assert_eq!(measured.library, "MPICH 5.0");
        assert_eq!((measured.latency, measured.bandwidth), (vec![512.5], vec![0.25]));
        assert!(parse(out, &[8, 64]).is_err());
        assert!(parse("latency 8 -1\nbandwidth 8 0", &[8]).is_err());
    }
}
