//! A table for people: columns as wide as they need to be.

use std::fmt;
use std::io::IsTerminal as _;

use crate::said::legible;

/// Rows under headings.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Which column is coloured, by what is in it.
    tint: Option<(usize, Tint)>,
}

/// The colour of a cell, as the parameter of an SGR sequence; nothing for the usual one.
type Tint = fn(&str) -> Option<u8>;

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self {
            rows: vec![headings.iter().map(|&heading| heading.to_owned()).collect()],
            tint: None,
        }
    }

    /// Colours the cells of a column, if a person reads this on a terminal that has colours.
    pub(crate) fn tinted(mut self, column: usize, tint: Tint) -> Self {
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        if is_wanted && std::io::stdout().is_terminal() {
            self.tint = Some((column, tint));
        }
        self
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| legible(cell).into_owned());
        self.rows.push(cells.collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| {
                    let padded = format!("{cell:<width$}");
                    let tint = self.tint.filter(|(at, _)| *at == column && number > 0);
                    match tint.and_then(|(_, tint)| tint(cell)) {
                        Some(colour) => format!("\x1b[{colour}m{padded}\x1b[0m"),
                        None => padded,
                    }
                })
                .collect();
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}
