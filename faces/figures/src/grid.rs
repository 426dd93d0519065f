//! Tables as values: shown in a terminal, or in a page.

use crate::{output, table::Table};

/// Behind what stands out.
pub const STANDS_OUT: &str = " !";

/// A table of text.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    pub caption: String,
    /// Those that begin with `>` are of numbers.
    pub columns: Vec<String>,
    pub lines: Vec<Vec<String>>,
}

impl Grid {
    /// For a terminal.
    pub fn table(&self) -> Table {
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let mut table = output::table(&columns);
        for line in &self.lines {
            table.add_row(line);
        }
        table
    }

    /// For a terminal, below its caption.
    pub fn text(&self) -> String {
        format!("{}\n{}\n", self.caption, self.table())
    }
}
