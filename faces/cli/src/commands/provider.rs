//! `petasos provider`: where the provider for libfabric is on this host, and with which variables
//! MPIs use it.

use crate::{
    cli::Provider,
    exit::{Code, Failure, Outcome},
    output,
};
use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

/// The library, under the name by which libfabric finds it in a folder.
const LIBRARY: &str = "libpetasos-fi.so";
/// The same, as cargo calls it.
const AS_BUILT: &str = "libpetasos_fi.so";
/// Names its folder, where that is none of the usual ones.
const FOLDER: &str = "PETASOS_PROVIDER";

/// How it is got.
const HOW: &str = "from the source tree, `scripts/provider` builds it into target/provider; it is found in \
                   the folder that PETASOS_PROVIDER names, beside `petasos`, or in ../lib/petasos, \
                   ../lib, ../lib64/petasos or ../lib64 from there";

/// What has libfabric and MPIs use the provider: names, values, and what each is for.
const SETTINGS: [(&str, &str, &str); 8] = [
    ("FI_PROVIDER", "petasos", "libfabric: this provider, and no other"),
    ("MPIR_CVAR_CH4_NETMOD", "ofi", "MPICH: libfabric rather than UCX, where it has both"),
    ("MPIR_CVAR_NOLOCAL", "1", "MPICH: within a node as well, not its own shared memory"),
    ("I_MPI_FABRICS", "ofi", "Intel MPI: libfabric within a node as well"),
    ("I_MPI_OFI_PROVIDER", "petasos", "Intel MPI: of its providers, this one"),
    ("OMPI_MCA_pml", "cm", "Open MPI: messages by a library that matches them"),
    ("OMPI_MCA_mtl", "ofi", "Open MPI: that library is libfabric"),
    ("OMPI_MCA_mtl_ofi_provider_include", "petasos", "Open MPI: of its providers, this one"),
];

/// All variables, with where the library is.
pub(crate) fn variables(folder: &Path) -> Outcome<Vec<(&'static str, String)>> {
    let text = folder.to_str().ok_or_else(|| {
        let text = format!("{} is no text, as variables have it", folder.display());
        Failure::new(Code::Unavailable, text)
    })?;
    let settings = SETTINGS.iter().map(|(name, value, _)| (*name, (*value).to_owned()));
    Ok([("FI_PROVIDER_PATH", text.to_owned())].into_iter().chain(settings).collect())
}

/// The folder with the library.
pub(crate) fn folder() -> Outcome<PathBuf> {
    if let Some(given) = env::var_os(FOLDER).filter(|given| !given.is_empty()) {
        return has(Path::new(&given)).ok_or_else(|| {
            let text = format!("{FOLDER} is {}, where there is no {LIBRARY}", given.display());
            Failure::new(Code::Unavailable, text).advise(HOW)
        });
    }
    let own = env::current_exe().and_then(|own| own.canonicalize()).ok();
    let beside = own.as_deref().and_then(Path::parent);
    let places = beside.into_iter().flat_map(places);
    places.into_iter().find_map(|place| has(&place)).ok_or_else(|| {
        let mut text = format!("the provider for libfabric ({LIBRARY}) is not here");
        if let Some(built) = beside.map(|at| at.join(AS_BUILT)).filter(|built| built.is_file()) {
            let built = built.display();
            text = format!("{text}; {built} is one, and libfabric looks for the other name");
        }
        Failure::new(Code::Unavailable, text).advise(HOW)
    })
}

/// Where it may be, of a command that is in this directory: where it was built, or installed.
fn places(beside: &Path) -> Vec<PathBuf> {
    let above = beside.parent().unwrap_or(beside);
    let below = ["lib/petasos", "lib", "lib64/petasos", "lib64", "provider"];
    [beside.to_owned()].into_iter().chain(below.map(|name| above.join(name))).collect()
}

/// This folder, with its whole path, if the library is in it.
fn has(folder: &Path) -> Option<PathBuf> {
    folder.join(LIBRARY).is_file().then(|| folder.canonicalize().ok())?
}

pub(crate) fn run(options: &Provider) -> Outcome {
    let folder = folder()?;
    let variables = variables(&folder)?;
    if options.json.json {
        let variables: BTreeMap<_, _> = variables.into_iter().collect();
        let library = folder.join(LIBRARY);
        return output::print_json(&serde_json::json!({
            "path": folder, "library": library, "variables": variables,
        }));
    }
    if options.print_path {
        return output::print(&folder.display().to_string());
    }
    if options.print_variables {
        let line = |(name, value): &(&str, String)| format!("export {name}={}", quoted(value));
        return output::print(&variables.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
    let mut table = output::table(&["variable", "value", "what it is for"]);
    for (name, value) in &variables {
        let known = SETTINGS.iter().find(|(of, ..)| of == name);
        let purpose = known.map_or("libfabric: where providers are", |(.., purpose)| purpose);
        table.add_row([*name, value, purpose]);
    }
    output::print(&format!(
        "{}\n{table}\n`petasos run --provider` sets them for the ranks of a job; elsewhere \
         eval \"$(petasos provider --print-variables)\" does",
        folder.join(LIBRARY).display()
    ))
}

/// As a shell takes a text.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    match text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_what_was_meant() {
        assert_eq!(quoted("/a/b-1.2"), "/a/b-1.2");
        for odd in ["/a b", "it's", "$(x)", "a\nb", ""] {
            let line = format!("printf %s. {}", quoted(odd));
            let said = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), format!("{odd}."));
        }
    }

    #[test]
    fn the_library_is_found_where_it_is_built_and_where_it_is_installed() {
        let places = |beside: &str| places(Path::new(beside));
        assert!(places("/x/target/release").contains(&"/x/target/provider".into()));
        assert!(places("/opt/petasos/bin").contains(&"/opt/petasos/lib".into()));
        assert!(places("/usr/bin").contains(&"/usr/lib/petasos".into()));
    }
}
