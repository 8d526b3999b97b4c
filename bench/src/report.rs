//! What was measured beside what was hoped for: a table for people, JSON for programs.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;
use crate::noise;
use crate::rounds::median;

/// All rows of a run.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    /// What it was measured on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<String>,
    pub(crate) rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<Note>,
}

/// What is to be said of a subject besides its figures.
#[derive(Serialize)]
pub(crate) struct Note {
    pub(crate) subject: &'static str,
    /// What this is: `keeps`, `version`, `not installed`.
    pub(crate) what: &'static str,
    pub(crate) text: String,
}

/// One figure: a ratio where there is something to compare with.
#[derive(Serialize)]
pub(crate) struct Row {
    /// What is measured: `file`, `redis`.
    pub(crate) subject: &'static str,
    /// Under which load.
    pub(crate) case: String,
    /// Which property of it.
    pub(crate) what: &'static str,
    pub(crate) unit: Unit,
    pub(crate) ours: f64,
    /// The same of what it is compared with.
    pub(crate) base: Option<f64>,
    /// The median of the rounds' ratios; without a base the same as `ours`.
    pub(crate) figure: f64,
    /// The least and the most of the rounds, as parts of `figure`; of their ratios where there is a base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spread: Option<[f64; 2]>,
    pub(crate) goal: Option<Goal>,
    /// Whether the goal is met, where there is one.
    pub(crate) met: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "us")]
    Micros,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "B")]
    Bytes,
    #[serde(rename = "MB")]
    Megabytes,
    /// A part of a whole.
    #[serde(rename = "share")]
    Share,
    #[serde(rename = "")]
    Count,
    /// So many times something else.
    #[serde(rename = "×")]
    Ratio,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtLeast(f64),
    Below(f64),
}

impl Row {
    /// A figure that stands for itself.
    pub(crate) fn alone(
        subject: &'static str,
        case: impl Into<String>,
        what: &'static str,
        (ours, unit): (f64, Unit),
        goal: Option<Goal>,
    ) -> Self {
        Self {
            subject,
            case: case.into(),
            what,
            unit,
            ours,
            base: None,
            figure: ours,
            spread: None,
            goal,
            met: goal.map(|goal| goal.is_met_by(ours)),
        }
    }

    /// The same beside what it is compared with, and the ratio of each round.
    pub(crate) fn against(mut self, base: f64, ratios: &[f64]) -> Self {
        let ratio = median(ratios.to_vec());
        self.base = Some(base);
        self.figure = ratio;
        self.met = self.goal.map(|goal| goal.is_met_by(ratio));
        self.spread(ratios)
    }

    /// The same with the least and the most of the rounds, as parts of their middle.
    pub(crate) fn spread(mut self, figures: &[f64]) -> Self {
        let middle = median(figures.to_vec());
        let lowest = figures.iter().copied().reduce(f64::min);
        let highest = figures.iter().copied().reduce(f64::max);
        let parts = lowest.zip(highest).filter(|_| middle > 0.0);
        self.spread = parts.map(|(lowest, highest)| [lowest / middle, highest / middle]);
        self
    }
}

impl Goal {
    fn is_met_by(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::Below(bound) => figure < bound,
        }
    }
}

impl Note {
    pub(crate) fn new(subject: &'static str, what: &'static str, text: impl Into<String>) -> Self {
        Self {
            subject,
            what,
            text: text.into(),
        }
    }
}

impl Report {
    /// What was measured, and how steady the machine was meanwhile.
    pub(crate) fn with_noise(mut self) -> Self {
        self.rows.extend(noise::rows());
        self
    }

    pub(crate) fn add(&mut self, part: Self) {
        self.rows.extend(part.rows);
        self.notes.extend(part.notes);
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let cannot = || Failure::doing(format!("write {}", path.display()));
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
        fs::write(path, text + "\n").map_err(cannot())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.rows.iter().map(Row::cells).collect();
        let head = [
            "subject", "case", "what", "ours", "base", "ratio", "spread", "goal", "",
        ];
        let head = head.map(str::to_owned);
        let width = |column: usize| {
            let cells = rows.iter().chain([&head]).map(|row| &row[column]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..head.len()).map(width).collect();
        for row in [&head].into_iter().chain(&rows) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:width$}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        for Note {
            subject,
            what,
            text,
        } in &self.notes
        {
            writeln!(f, "{subject}: {what}: {text}")?;
        }
        Ok(())
    }
}

impl Row {
    pub(crate) fn cells(&self) -> [String; 9] {
        [
            self.subject.to_owned(),
            self.case.clone(),
            self.what.to_owned(),
            self.unit.show(self.ours),
            self.base.map_or_else(String::new, |it| self.unit.show(it)),
            self.base
                .map_or_else(String::new, |_| format!("{:.2}", self.figure)),
            self.spread.map_or_else(String::new, |[lowest, highest]| {
                format!(
                    "−{:.0} % +{:.0} %",
                    (1.0 - lowest) * 100.0,
                    (highest - 1.0) * 100.0
                )
            }),
            self.goal.map_or_else(String::new, |goal| goal.to_string()),
            match self.met {
                Some(true) => "met".to_owned(),
                Some(false) => "MISSED".to_owned(),
                None => String::new(),
            },
        ]
    }
}

impl Unit {
    pub(crate) fn show(self, figure: f64) -> String {
        match self {
            Self::Micros if figure < 10.0 => format!("{figure:.2} µs"),
            Self::PerSecond => format!("{figure:.0}/s"),
            Self::Micros => format!("{figure:.0} µs"),
            Self::Seconds if figure < 1.0 => format!("{:.0} ms", figure * 1000.0),
            Self::Seconds => format!("{figure:.2} s"),
            Self::Bytes => format!("{figure:.0} B"),
            Self::Megabytes => format!("{figure:.0} MB"),
            Self::Share => format!("{:.2} %", figure * 100.0),
            Self::Count => format!("{figure:.0}"),
            Self::Ratio => format!("{figure:.2}"),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::Below(bound) => write!(f, "< {bound}"),
        }
    }
}
