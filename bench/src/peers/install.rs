//! What has to be installed or built for a peer: files of ours, and commands of its registry. What is
//! there already is not made again.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::budget::Budget;
use crate::failure::Failure;
use crate::say;
use crate::tool::{NPM, PYTHON};

/// Says, by what was done, that all was done.
const READY: &str = "ready";
const LOG: &str = "install.log";
const LOG_LINES_TOLD: usize = 3;

/// What a peer needs.
#[derive(Debug)]
pub(super) struct Kit {
    /// The folder that it is in.
    pub(super) name: &'static str,
    /// Names and texts.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// Commands that run in the folder.
    pub(super) steps: &'static [&'static str],
}

impl Kit {
    /// Whether it takes minutes.
    pub(super) fn compiles(&self) -> bool {
        self.steps.iter().any(|step| step.starts_with("cargo"))
    }
}

pub(super) fn install(kit: &Kit, kits: &Path, budget: Budget) -> Result<(), Failure> {
    let folder = kits.join(kit.name);
    let done = format!("{kit:?}");
    if fs::read_to_string(folder.join(READY)).is_ok_and(|ready| ready == done) {
        return Ok(());
    }
    let cannot = || Failure::doing(format!("write to {}", folder.display()));
    for (name, text) in kit.files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(cannot())?;
        fs::write(&path, text).map_err(cannot())?;
    }
    fs::create_dir_all(&folder).map_err(cannot())?;
    for step in kit.steps {
        say(&format!("peers: {}: {step}", kit.name));
        run(step, kits, &folder, budget)?;
    }
    fs::write(folder.join(READY), done).map_err(cannot())
}

fn run(step: &str, kits: &Path, folder: &Path, budget: Budget) -> Result<(), Failure> {
    if !budget.has_time() {
        return Err(Failure::new("no time was left to install it"));
    }
    let mut words = step.split(' ');
    let program = words.next().unwrap_or_default();
    let program = match program {
        "npm" => NPM.command()?.get_program().to_owned(),
        "python3" => PYTHON.command()?.get_program().to_owned(),
        other => other.into(),
    };
    let log = folder.join(LOG);
    let cannot = || Failure::doing(format!("write to {}", log.display()));
    let out = File::create(&log).map_err(cannot())?;
    let err = out.try_clone().map_err(cannot())?;
    // Ends with us, and with its time.
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "--", "timeout", "-k", "5"])
        .arg(budget.left().as_secs().max(1).to_string())
        .arg(program)
        .args(words)
        .current_dir(folder)
        // What several peers build on is built once.
        .env("CARGO_TARGET_DIR", kits.join("target"))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .status()
        .map_err(Failure::doing(format!("run {step}")))?;
    if status.success() {
        return Ok(());
    }
    let log = fs::read_to_string(&log).unwrap_or_default();
    let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES_TOLD)..].join(" / ");
    Err(Failure::new(match status.code() {
        Some(124 | 137) => format!("`{step}` took too long"),
        _ => format!("`{step}` failed, {status}: {last}"),
    }))
}
