//! From text to settings: the file first, then variables, then flags. Everything that is wrong is
//! reported at once, each with its place.

use std::collections::BTreeMap;
use std::path::Path;

use onlyonce_stores::nearest;

use super::Config;
use super::document::Document;
use super::error::{ConfigError, Problem};
use crate::settings::{self, Findings, Settings};

/// What starts the name of a variable.
const PREFIX: &str = "ONLYONCE_";
/// Variables that are read elsewhere.
const NOT_SETTINGS: [&str; 3] = [
    "ONLYONCE_CONFIG",
    "ONLYONCE_ADMIN_TOKEN",
    "ONLYONCE_OPERATOR",
];
/// What settings are called that no file gives.
const NO_FILE: &str = "settings";
/// Settings that a table cannot be without, each with an example.
const NEEDED: [(&str, &str); 5] = [
    ("match", "POST /orders"),
    ("path", "audit.jsonl"),
    ("cert", "cert.pem"),
    ("key", "key.pem"),
    ("key_file", "jwt.pem"),
];
/// Names the settings that a variable or a flag may give, and takes them from one set of settings into
/// another.
macro_rules! overrides {
    ($($field:ident)+) => {
        /// Settings that a variable or a flag may give.
        pub(super) const OVERRIDES: &[&str] = &[$(stringify!($field)),+];

        /// Replaces those of `config` that `given` has.
        fn override_by(given: Config, config: &mut Config) {
            $(if given.$field.is_some() {
                config.$field = given.$field;
            })+
        }
    };
}

overrides!(listen admin admin_token_file upstream store profile mode ttl namespace instance secret_file drain);

/// Reads the settings: `file` if there is one, then the `ONLYONCE_…` among `variables`, then
/// `flags` by their names in the schema. They fit together; the tokens, secrets, keys and certificates that they
/// name are not read. A gateway needs [`Settings`].
pub fn load(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: &[(&'static str, String)],
) -> Result<Config, ConfigError> {
    judged(file, variables, flags, fit)
}

/// The settings that [`Settings::load`] gives.
pub(crate) fn resolved(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: &[(&'static str, String)],
) -> Result<Settings, ConfigError> {
    judged(file, variables, flags, settings::resolve)
}

/// Reads the settings that `text` alone gives; errors call it `file`.
pub fn read(file: &str, text: &str) -> Result<Config, ConfigError> {
    Reading::of(file, text).judged(fit)
}

fn fit(config: &Config) -> Result<Config, Findings> {
    let findings = settings::fit(config);
    if findings.is_empty() {
        Ok(config.clone())
    } else {
        Err(findings)
    }
}

fn judged<T>(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: &[(&'static str, String)],
    judge: impl FnOnce(&Config) -> Result<T, Findings>,
) -> Result<T, ConfigError> {
    let (name, text) = match file {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                ConfigError::new(path.display(), format!("cannot be read: {error}"))
            })?;
            (path.display().to_string(), text)
        }
        None => (NO_FILE.to_owned(), String::new()),
    };
    let mut reading = Reading::of(&name, &text);
    for (name, value) in variables {
        let Some(setting) = name.strip_prefix(PREFIX) else {
            continue;
        };
        if NOT_SETTINGS.contains(&name.as_str()) || setting.starts_with("TEST_") {
            continue;
        }
        reading.set(&name, &setting.to_ascii_lowercase(), &value);
    }
    for (name, value) in flags {
        reading.set(&format!("--{}", name.replace('_', "-")), name, value);
    }
    reading.judged(judge)
}

/// Settings on their way, and what is wrong with them so far.
struct Reading<'a> {
    document: Document<'a>,
    config: Config,
    problems: Vec<Problem>,
    /// The variable or flag that gave a setting.
    given_by: BTreeMap<String, String>,
}

impl<'a> Reading<'a> {
    fn of(file: &'a str, text: &'a str) -> Self {
        let (document, config, problems) = Document::read(file, text);
        Self {
            document,
            config,
            problems,
            given_by: BTreeMap::new(),
        }
    }

    /// Sets one setting from its text.
    fn set(&mut self, place: &str, name: &str, value: &str) {
        match set(&mut self.config, name, value) {
            Ok(()) => drop(self.given_by.insert(name.to_owned(), place.to_owned())),
            Err(why) => self.problems.push(Problem::new(place, why)),
        }
    }

    /// What `judge` makes of the settings, or all that is wrong: what could not be read, and what `judge` found,
    /// except where that is about what could not be read.
    fn judged<T>(
        mut self,
        judge: impl FnOnce(&Config) -> Result<T, Findings>,
    ) -> Result<T, ConfigError> {
        let findings = match judge(&self.config) {
            Ok(made) if self.problems.is_empty() => return Ok(made),
            Ok(_) => Findings::default(),
            Err(findings) => findings,
        };
        for finding in findings {
            let is_unknown =
                |name: &&str| !self.given_by.contains_key(*name) && self.document.leaves_out(name);
            if finding.about.iter().any(is_unknown) {
                continue;
            }
            let given_by = self.given_by.get(&finding.at).cloned();
            let place = given_by.unwrap_or_else(|| self.document.place(&finding.at));
            self.problems.push(Problem::new(place, finding.why));
        }
        self.problems.sort_by_key(Problem::line);
        Err(ConfigError::of_all(self.problems))
    }
}

fn set(config: &mut Config, name: &str, value: &str) -> Result<(), String> {
    if !OVERRIDES.contains(&name) {
        let near = nearest(name, OVERRIDES).map_or_else(
            || format!("there are {}", OVERRIDES.join(", ")),
            |near| format!("did you mean {PREFIX}{}?", near.to_ascii_uppercase()),
        );
        return Err(format!("there is no such setting; {near}"));
    }
    let text = format!("{name} = {}", toml::Value::from(value));
    let given: Config = toml::from_str(&text).map_err(|error| explain(None, error.message()))?;
    override_by(given, config);
    Ok(())
}

/// An error of the parser at the setting `name`, with what would be right where it does not say so.
pub(super) fn explain(name: Option<&str>, message: &str) -> String {
    let of = name.map(|name| format!("{name}: ")).unwrap_or_default();
    if message.starts_with("invalid socket address") {
        return format!("{of}this is not an address and a port: write it like \"127.0.0.1:8080\"");
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        let field = field.trim_matches('`');
        let known = NEEDED.iter().find(|(name, _)| *name == field);
        let example = known.map(|(_, example)| format!(", as in {field} = \"{example}\""));
        return format!("{of}`{field}` must be given{}", example.unwrap_or_default());
    }
    if message.ends_with("expected a boolean") {
        return format!("{of}{message}: write true or false");
    }
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if !message.starts_with("unknown field") && !message.starts_with("unknown variant") {
        return format!("{of}{message}");
    }
    let Some((found, known)) = words.split_first() else {
        return message.to_owned();
    };
    let hint = match nearest(found, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", known.join(", ")),
    };
    format!("there is no setting or value `{found}` here; {hint}")
}
