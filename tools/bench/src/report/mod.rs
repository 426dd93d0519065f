//! The page of a bench: one self-contained file with all plots and tables, and the results as JSON
//! beside it.

mod charts;
mod page;
mod plot;
mod scale;
mod text;

pub(crate) use charts::{Guest, Whose, charts};
pub(crate) use page::{Page, Section};

use crate::exit::{Failure, Outcome};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

const PAGE: &str = "index.html";
const RESULTS: &str = "results.json";

/// The directory of a report.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the directory before anything is measured, since that may fail.
    pub(crate) fn prepare(path: &Path) -> Outcome<Folder> {
        let refused = |error| {
            Failure::file("making the directory of the report,", path, &error)
                .advise("--report DIR with a directory that you may write to")
        };
        fs::create_dir_all(path).map_err(refused)?;
        // Whether files can be made there.
        tempfile::tempfile_in(path).map_err(refused)?;
        Ok(Folder(path.to_owned()))
    }

    /// Writes the page and the results over earlier ones; returns the path of the page.
    pub(crate) fn write(&self, page: &Page<'_>, results: &impl Serialize) -> Outcome<PathBuf> {
        let json =
            serde_json::to_string_pretty(results).map_err(Failure::system("writing JSON"))?;
        self.put(RESULTS, &json)?;
        self.put(PAGE, &page.html(RESULTS))
    }

    fn put(&self, name: &str, text: &str) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|error| Failure::file("writing", &path, &error))?;
        Ok(path)
    }
}
