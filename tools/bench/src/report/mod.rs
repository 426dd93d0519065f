//! The page of a bench: one file with all its plots and tables, which needs nothing from elsewhere,
//! and the results as JSON beside it.

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

/// Where a report goes.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the directory, before anything is measured: it may be refused.
    pub(crate) fn prepare(path: &Path) -> Outcome<Folder> {
        let refused = |error| {
            Failure::file("making the directory of the report,", path, &error)
                .advise("--report DIR with a directory that you may write to")
        };
        fs::create_dir_all(path).map_err(refused)?;
        // Made here, it says at once whether files can be.
        tempfile::tempfile_in(path).map_err(refused)?;
        Ok(Folder(path.to_owned()))
    }

    /// Writes the page and the results, in place of earlier ones; gives where the page is.
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
