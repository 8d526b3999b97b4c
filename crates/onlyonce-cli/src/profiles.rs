//! `onlyonce profiles`: the named presets, and what each does.

use std::process::ExitCode;

use onlyonce_core::policy::{Duplicate, KeyNeed, Methods, ReplayStatus};
use onlyonce_core::{Policy, Profile, Reason, profile};
use serde_json::{Value, json};

use crate::said::give;
use crate::table::Table;

/// How to print them.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Prints them; returns the exit code.
pub fn run(args: &Args) -> ExitCode {
    if args.json {
        let all: Vec<Value> = profile::all().into_iter().map(describe).collect();
        give(format_args!("{}", Value::from(all)));
        return ExitCode::SUCCESS;
    }
    let mut table = Table::new(&[
        "PROFILE",
        "METHODS",
        "NO KEY",
        "OTHER PAYLOAD",
        "WHILE RUNNING",
        "REPLAY",
        "KEPT",
    ]);
    for profile in profile::all() {
        let told = describe(profile);
        let text = |name: &str| {
            let value = &told[name];
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        };
        table.row(vec![
            text("name"),
            text("methods"),
            text("missing_key"),
            text("mismatch_status"),
            text("duplicate"),
            text("replay_status"),
            text("keep_for"),
        ]);
    }
    give(format_args!("{table}"));
    ExitCode::SUCCESS
}

fn describe(profile: Profile) -> Value {
    let policy = profile.policy();
    json!({
        "name": profile.name(),
        "methods": methods(&policy.http.methods),
        "missing_key": missing(&policy),
        "mismatch_status": policy.http.refusals.row(Reason::Mismatch).status,
        "duplicate": match policy.duplicate {
            Duplicate::Wait(at_most) => format!("waits {}", humantime::format_duration(at_most)),
            Duplicate::Refuse => "refused".to_owned(),
        },
        "replay_status": match policy.http.replay_status {
            ReplayStatus::AsStored => "as stored".to_owned(),
            ReplayStatus::Ok => "200".to_owned(),
        },
        "keep_for": humantime::format_duration(policy.keep_for).to_string(),
        "key_header": policy.http.key_header.as_str(),
        "key_bytes_max": policy.key.bytes_max,
    })
}

fn methods(methods: &Methods) -> String {
    match methods {
        Methods::Unsafe(_) => "all unsafe".to_owned(),
        Methods::Only(list) => {
            let names: Vec<&str> = list.iter().map(|(method, _)| method.as_str()).collect();
            names.join(" ")
        }
    }
}

fn missing(policy: &Policy) -> &'static str {
    let required = match &policy.http.methods {
        Methods::Unsafe(need) => *need == KeyNeed::Required,
        Methods::Only(list) => list.iter().any(|(_, need)| *need == KeyNeed::Required),
    };
    match (&policy.http.derive, required) {
        (Some(_), _) => "derived",
        (None, true) => "refused",
        (None, false) => "passes",
    }
}
