//! The servers that tests need: installed where they are missing, started before the tests and
//! stopped after them.
//!
//! They belong to a program of their own, the example `servers` of onlyonce-testkit, which lives
//! as long as we hold its stdin open. So they end with us, whatever ends us.

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Failure;
use crate::cargo::{self, cannot_run, stdout};

const PROGRAM: &str = "servers";
/// The packages with tests that talk to servers.
const NEEDED_BY: [&str; 12] = [
    "onlyonce-chaos",
    "onlyonce-cli",
    "onlyonce-demo",
    "onlyonce-examples",
    "onlyonce-gateway",
    "onlyonce-node",
    "onlyonce-python",
    "onlyonce-redis",
    "onlyonce-settle",
    "onlyonce-sql",
    "onlyonce-stores",
    "onlyonce-testkit",
];
const OUTPUT_LINES_SHOWN: usize = 20;

/// Where a release of Debian lacks one of the packages, its backports are asked too: bookworm has
/// valkey-server only there. They come from the mirror that the machine uses, and are never preferred
/// to what the release has itself.
const UPDATE: &str = r#"
apt-get -q -o DPkg::Lock::Timeout=120 update
. /etc/os-release
for package; do
  if [ "$ID" = debian ] && [ -z "$(apt-cache madison "$package")" ]; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' \
      'Created-By: Packages' "Codename: $VERSION_CODENAME" | head -n 1)
    echo "deb $mirror $VERSION_CODENAME-backports main" \
      > /etc/apt/sources.list.d/onlyonce-backports.list
    exec apt-get -q -o DPkg::Lock::Timeout=120 update
  fi
done
"#;
/// Packages would start their own servers for the whole machine. A policy against that is left as
/// it was found.
const INSTALL: &str = r#"
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 1' HUP INT TERM
  printf '#!/bin/sh\nexit 101\n' > "$policy" && chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -q -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@"
"#;

/// The running servers, if the tests need any. They end with this value.
pub(crate) struct Servers {
    process: Option<Child>,
    /// What tells the tests where they are.
    variables: Vec<(String, String)>,
}

impl Servers {
    /// Starts the servers, if these arguments of `cargo test` select tests that may need them.
    pub(crate) fn start_for(extra: &[String]) -> Result<Self, Failure> {
        let nothing = Self {
            process: None,
            variables: Vec::new(),
        };
        if !are_needed(extra) {
            return Ok(nothing);
        }

        println!("servers: building what starts them");
        let program = cargo::example(PROGRAM)?
            .ok_or_else(|| Failure::new("what starts the servers does not build"))?;
        install_missing(Command::new(&program).arg("--missing"))?;
        println!("servers: starting");
        let mut servers = nothing;
        servers.start(&program)?;
        Ok(servers)
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let variables = self.variables.iter();
        variables.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Starts the program and reads the addresses, one per line up to an empty one. What it says
    /// otherwise goes to the terminal.
    fn start(&mut self, program: &Path) -> Result<(), Failure> {
        let mut command = Command::new(program);
        // In a process group of its own it gets a Ctrl-C only through us, and can clean up.
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let child = command.spawn();
        let mut child = child.map_err(|error| cannot_run(&command, &error))?;
        let output = child.stdout.take().expect("its stdout is a pipe");
        self.process = Some(child);

        for line in BufReader::new(output).lines() {
            let line = line.map_err(|error| cannot_run(&command, &error))?;
            match line.split_once('=') {
                Some((name, value)) => self.variables.push((name.to_owned(), value.to_owned())),
                None => return Ok(()),
            }
        }
        Err(Failure::new("the servers did not start; see above"))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            match process.wait() {
                Ok(_) => println!("servers: stopped"),
                Err(error) => eprintln!("servers: cannot see whether they stopped: {error}"),
            }
        }
    }
}

fn are_needed(extra: &[String]) -> bool {
    selects(extra, &NEEDED_BY)
}

/// True if these arguments of `cargo test` select one of the packages: by name, by pattern, or as all are.
pub(crate) fn selects(extra: &[String], packages: &[&str]) -> bool {
    let mut args = extra.iter().take_while(|arg| *arg != "--");
    let mut selects_all = true;
    while let Some(arg) = args.next() {
        let package = match arg.as_str() {
            "-p" | "--package" => args.next().map_or("", String::as_str),
            arg => match arg.strip_prefix("--package=").or(arg.strip_prefix("-p")) {
                Some(package) => package.trim_start_matches('='),
                None => continue,
            },
        };
        let name = package.split('@').next().unwrap_or_default();
        if packages.contains(&name) || name.contains(['*', '?', '[']) {
            return true;
        }
        selects_all = false;
    }
    selects_all
}

/// Installs the Debian packages that `asked` names, one per line.
pub(crate) fn install_missing(asked: &mut Command) -> Result<(), Failure> {
    let text = stdout(asked)?;
    let text = text.ok_or_else(|| Failure::new("cannot see which packages are installed"))?;
    let missing: Vec<_> = text.lines().map(str::to_owned).collect();
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing)
}

fn install(packages: &[String]) -> Result<(), Failure> {
    let names = packages.join(" ");
    let by_hand = |failure: Failure| {
        Failure::new(format!(
            "programs are needed that are not installed, and installing them failed: {}\n\
             install them by hand: apt-get install --no-install-recommends {names}",
            failure.0
        ))
    };
    println!("servers: not installed: {names}");
    println!("servers: apt-get update");
    as_root(UPDATE, packages).map_err(by_hand)?;
    println!("servers: apt-get install {names}");
    as_root(INSTALL, packages).map_err(by_hand)
}

/// Runs a script as root, quietly unless it fails.
fn as_root(script: &str, args: &[String]) -> Result<(), Failure> {
    let mut command = if is_root() {
        Command::new("sh")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "sh"]);
        sudo
    };
    command.args(["-c", script, "sh"]).args(args);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| cannot_run(&command, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<_> = said.lines().collect();
    let shown = &lines[lines.len().saturating_sub(OUTPUT_LINES_SHOWN)..];
    Err(Failure::new(shown.join("\n")))
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
