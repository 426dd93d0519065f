//! `petasos bench mpi`: what it measures, and what it says of what is missing. Speed is not
//! asserted.

use crate::common::Place;
use std::{os::unix::fs::symlink, path::Path};

/// A folder of this place with the provider.
fn folder(place: &Place) -> String {
    let folder = place.path("providers");
    let library = std::env::current_exe().unwrap().with_file_name("libpetasos_fi.so");
    assert!(library.exists(), "{} was built with the test", library.display());
    std::fs::create_dir(&folder).unwrap();
    symlink(library, folder.join("libpetasos-fi.so")).unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn all_ways_of_an_mpi_are_measured() {
    let place = Place::new();
    let folder = folder(&place);
    let provider = ("PETASOS_PROVIDER", folder.as_str());
    // A choice of the user's is not that of the MPI itself.
    let environment = [provider, ("FI_PROVIDER", "nothing"), ("OMPI_MCA_pml", "nothing")];
    let words = ["bench", "mpi", "--quick", "--rounds", "1", "--size", "8,64KiB"];
    for (mpicc, over) in [("mpicc.openmpi", true), ("mpicc.mpich", false)] {
        if !Path::new("/usr/bin").join(mpicc).exists() {
            petasos_testing::skip(&format!("{mpicc} (libopenmpi-dev, libmpich-dev) is not here"));
            continue;
        }
        let words = [&words[..], &["--mpicc", mpicc]].concat();
        let found = place.run_with(&[&words[..], &["--json"]].concat(), &environment).assert(0);
        let found = found.json();
        let rows = found["mpis"][0]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{found}");
        for (row, bytes) in rows.iter().zip([8, 65_536]) {
            assert_eq!(row["bytes"], bytes);
            let ways = row["ways"].as_array().unwrap();
            let names: Vec<_> = ways.iter().map(|way| way["way"].as_str().unwrap()).collect();
            assert!(names.contains(&"own") && names.contains(&"petasos") == over, "{row}");
            for way in ways {
                assert!(way["latency_ns"].as_f64() > Some(50.0), "{row}");
                assert!(way["gb_per_s"].as_f64() > Some(0.0), "{row}");
            }
        }
        // Debian's MPICH 4.0 has no libfabric: that is said, and not measured as if it had.
        let skipped = found["skipped"].to_string();
        assert_eq!(skipped.contains("built without libfabric"), !over, "{skipped}");
        if !over {
            let text = place.run_with(&words, &environment).assert(0).out;
            assert!(text.contains("bandwidth") && text.contains("64 KiB"), "{text}");
        }
    }
    place.assert_clean();
}

#[test]
fn what_is_missing_is_said() {
    let place = Place::new();
    let folder = folder(&place);
    let provider = [("PETASOS_PROVIDER", folder.as_str())];
    let nowhere = place.run_with(&["bench", "mpi"], &[("PETASOS_PROVIDER", "/nowhere")]);
    nowhere.assert(6).says("/nowhere").says("scripts/provider");
    let none = [("PATH", "/nowhere"), provider[0]];
    let ran = place.run_with(&["bench", "mpi", "--mpicc", "/nowhere/mpicc"], &none).assert(6);
    ran.says("/nowhere/mpicc: ").says("libopenmpi-dev").says("scripts/mpi");
    place.assert_clean();
}
