//! Tables for a terminal.
//!
//! A table is fitted to the width of the terminal only where no word has to be broken for that. A
//! terminal that is narrower gets whole lines, which it wraps itself, and one that says nothing of
//! its width (0 columns, as a serial line or a fresh pseudo-terminal does) is not asked to be
//! narrow.

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table as Inner, TableComponent,
    Width, presets,
};
use std::{
    fmt,
    io::{self, IsTerminal},
};

/// Blanks on both sides of a cell.
const PADDING: usize = 2;

/// A table of text, for standard output.
#[derive(Clone, Debug)]
pub struct Table {
    inner: Inner,
    /// Columns of the terminal, where it has a width.
    width: Option<u16>,
}

impl Table {
    /// With these headings; those that begin with `>` are of numbers, which go to the right.
    pub fn new(headings: &[&str]) -> Table {
        Table::within(headings, width_of_output())
    }

    fn within(headings: &[&str], width: Option<u16>) -> Table {
        let mut inner = Inner::new();
        inner.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        inner.remove_style(TableComponent::HorizontalLines);
        inner.remove_style(TableComponent::MiddleIntersections);
        inner.set_header(headings.iter().map(|heading| Cell::new(heading.trim_start_matches('>'))));
        for (at, heading) in headings.iter().enumerate() {
            if heading.starts_with('>')
                && let Some(column) = inner.column_mut(at)
            {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Table { inner, width }
    }

    pub fn add_row(&mut self, row: impl Into<Row>) {
        self.inner.add_row(row);
    }

    /// The longest word of each column.
    fn longest_words(&self) -> Vec<usize> {
        let mut longest = vec![0; self.inner.header().map_or(0, Row::cell_count)];
        for row in self.inner.header().into_iter().chain(self.inner.row_iter()) {
            for (longest, cell) in longest.iter_mut().zip(row.cell_iter()) {
                let content = cell.content();
                let words = content.split_whitespace().map(|word| word.chars().count());
                *longest = words.fold(*longest, usize::max);
            }
        }
        longest
    }

    /// The table, fitted to its width or not at all.
    fn fitted(&self) -> Inner {
        let mut fitted = self.inner.clone();
        let words = self.longest_words();
        // A border, or a blank in its place, may stand before each column and at the end.
        let least = words.iter().map(|word| word + PADDING + 1).sum::<usize>() + 1;
        let Some(width) = self.width.filter(|width| least <= usize::from(*width)) else {
            fitted.set_content_arrangement(ContentArrangement::Disabled);
            return fitted;
        };
        fitted.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        for (at, word) in words.into_iter().enumerate() {
            // Not more than the width, which is a `u16`.
            let least = Width::Fixed((word + PADDING) as u16);
            if let Some(column) = fitted.column_mut(at) {
                column.set_constraint(ColumnConstraint::LowerBoundary(least));
            }
        }
        fitted
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fitted().fmt(f)
    }
}

/// The columns of the terminal that standard output is; none where it is no terminal, or does not
/// say.
fn width_of_output() -> Option<u16> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let said = rustix::termios::tcgetwinsize(&out).map_or(0, |size| size.ws_col);
    let by_user = || std::env::var("COLUMNS").ok()?.parse().ok();
    Some(said).filter(|columns| *columns > 0).or_else(by_user).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: Option<u16>) -> String {
        let mut table = Table::within(&["transport", "what", ">petasos"], width);
        table.add_row(["shm", "memory to server, 16 MiB", "29.4 GB/s"]);
        table.add_row(["tcp", "files read back, compared", "2.90 GB/s"]);
        table.to_string()
    }

    #[test]
    fn no_word_is_broken() {
        for width in [None].into_iter().chain((1..120).map(Some)) {
            let shown = shown(width);
            let words: Vec<&str> = shown.split_whitespace().collect();
            for word in ["transport", "petasos", "compared", "29.4", "GB/s"] {
                assert!(words.contains(&word), "{width:?}: no `{word}` in\n{shown}");
            }
        }
    }

    #[test]
    fn lines_fit_where_they_can() {
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        let whole = shown(None);
        assert!(whole.contains("files read back, compared"), "{whole}");
        for width in [45, 50] {
            let fitted = shown(Some(width));
            assert!(longest(&fitted) <= width.into(), "{width}:\n{fitted}");
            assert!(fitted.lines().count() > whole.lines().count(), "{width}:\n{fitted}");
        }
        // Too narrow for whole words, and wide enough for all.
        assert_eq!(shown(Some(20)), whole);
        assert_eq!(longest(&shown(Some(200))), longest(&whole));
    }
}
