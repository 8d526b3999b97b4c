//! `onlyonce profiles`: the named contracts, what each does, and each as a file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use onlyonce_core::fingerprint::BodyRule;
use onlyonce_core::policy::{
    Duplicate, HttpRules, KeyFirst, KeyNeed, Methods, ReplayStatus, StoredRule,
};
use onlyonce_core::{Policy, Profile, Reason, profile};
use serde_json::{Value, json};

use crate::said::{FAILED, give, say};
use crate::table::Table;

/// How to print them.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

/// What to do with one of them.
#[derive(Debug, Subcommand)]
enum Action {
    /// Print a contract whole, as a file that can be changed and given to a gateway
    Show {
        /// A profile's name, or a file with a contract of your own
        name: String,
    },
}

/// Prints them; returns the exit code.
pub fn run(args: &Args) -> ExitCode {
    match &args.action {
        Some(Action::Show { name }) => show(name),
        None if args.json => {
            let all: Vec<Value> = profile::all().into_iter().map(describe).collect();
            give(format_args!("{}", Value::from(all)));
            ExitCode::SUCCESS
        }
        None => {
            list();
            ExitCode::SUCCESS
        }
    }
}

fn list() {
    let mut table = Table::new(&[
        "PROFILE",
        "METHODS",
        "KEY",
        "NO KEY",
        "OTHER PAYLOAD",
        "WHILE RUNNING",
        "REPLAY",
        "STORED",
        "SCOPE",
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
            text("key"),
            text("missing_key"),
            text("other_payload"),
            text("duplicate"),
            text("replay_status"),
            text("stored"),
            text("scope"),
            text("keep_for"),
        ]);
    }
    give(format_args!("{table}"));
    for profile in profile::all() {
        give(format_args!("{profile}: {}", profile.about()));
    }
    give(format_args!(
        "\nonlyonce profiles show NAME prints one whole; docs/configuration.md says how to write your own"
    ));
}

fn show(name: &str) -> ExitCode {
    let (about, policy) = match name.parse::<Profile>() {
        Ok(profile) => (format!("{profile}: {}", profile.about()), profile.policy()),
        Err(unknown) => match from_file(name) {
            Some(Ok(policy)) => (name.to_owned(), policy),
            Some(Err(why)) => {
                say(format_args!("onlyonce: {why}"));
                return FAILED.into();
            }
            None => {
                say(format_args!("onlyonce: {unknown}, or a file"));
                return FAILED.into();
            }
        },
    };
    give(format_args!("# {about}\n\n{}", policy.to_toml().trim_end()));
    ExitCode::SUCCESS
}

/// The policy of the contract in a file, if `name` is one.
fn from_file(name: &str) -> Option<Result<Policy, String>> {
    let path = PathBuf::from(name);
    if !name.contains('/') && !name.ends_with(".toml") {
        return None;
    }
    let read = std::fs::read_to_string(&path)
        .map_err(|error| format!("{name}: cannot be read: {error}"))
        .and_then(|text| Profile::from_toml(&text).map_err(|error| format!("{name}: {error}")));
    Some(read)
}

fn describe(profile: Profile) -> Value {
    let policy = profile.policy();
    let scope: Vec<String> = policy.http.scope.iter().map(ToString::to_string).collect();
    json!({
        "name": profile.name(),
        "about": profile.about(),
        "methods": methods(&policy.http.methods),
        "missing_key": missing(&policy),
        "other_payload": other_payload(&policy),
        "mismatch_status": policy.http.refusals.row(Reason::Mismatch).status,
        "duplicate": match policy.duplicate {
            Duplicate::Wait(at_most) => format!("waits {}", humantime::format_duration(at_most)),
            Duplicate::Refuse => {
                format!("{} at once", policy.http.refusals.row(Reason::InProgress).status)
            }
        },
        "replay_status": match policy.http.replay_status {
            ReplayStatus::AsStored => "as stored".to_owned(),
            ReplayStatus::Ok => "200".to_owned(),
        },
        "stored": stored(&policy.stored),
        "scope": scope.join(" "),
        "keep_for": kept(policy.keep_for),
        "key": key(&policy.http),
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

/// A length of time, in whole days where it is several: people do not count in months of 30.44 days.
fn kept(span: Duration) -> String {
    const DAY_SECONDS: u64 = 24 * 60 * 60;
    let days = span.as_secs() / DAY_SECONDS;
    if days > 1 && span == Duration::from_secs(days * DAY_SECONDS) {
        return format!("{days}days");
    }
    humantime::format_duration(span).to_string()
}

/// Where the key is.
fn key(rules: &HttpRules) -> String {
    match (&rules.key_member, rules.key_first) {
        (Some(place), KeyFirst::Body) => format!("body {place}"),
        (Some(_), KeyFirst::Header) | (None, _) => rules.key_header.to_string(),
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

/// What another payload under the same key gets.
fn other_payload(policy: &Policy) -> String {
    match policy.fingerprint.body {
        BodyRule::Ignore => "replayed".to_owned(),
        BodyRule::Canonical | BodyRule::Bytes => {
            let row = policy.http.refusals.row(Reason::Mismatch);
            row.status.to_string()
        }
    }
}

/// Which statuses are stored.
fn stored(rule: &StoredRule) -> String {
    let except = rule
        .except
        .iter()
        .filter(|it| (rule.from..rule.below).contains(it));
    let except: Vec<String> = except.map(u16::to_string).collect();
    let range = match (rule.from, rule.below) {
        (from, below) if from <= 100 && below >= 600 => "all".to_owned(),
        (from, below) if from <= 100 => format!("below {below}"),
        (from, below) => format!("{from} to {}", below - 1),
    };
    if except.is_empty() {
        range
    } else {
        format!("{range} but {}", except.join(" "))
    }
}
