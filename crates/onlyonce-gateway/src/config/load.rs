//! From text to settings: the file first, then variables, then flags. Every error names its place.

use std::fmt;
use std::path::Path;

use onlyonce_stores::nearest;
use thiserror::Error;

use super::Config;

/// What starts the name of a variable.
const PREFIX: &str = "ONLYONCE_";
/// Variables that are read elsewhere.
const NOT_SETTINGS: [&str; 2] = ["ONLYONCE_CONFIG", "ONLYONCE_ADMIN_TOKEN"];
/// Settings that a variable or a flag may give.
pub(super) const OVERRIDES: [&str; 11] = [
    "listen",
    "admin",
    "admin_token_file",
    "upstream",
    "store",
    "profile",
    "ttl",
    "namespace",
    "instance",
    "secret_file",
    "drain",
];

/// A setting that cannot be, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place}: {why}")]
pub struct ConfigError {
    /// `onlyonce.toml:12`, `ONLYONCE_LISTEN` or `--listen`.
    pub place: String,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl ConfigError {
    pub(crate) fn new(place: impl fmt::Display, why: impl Into<String>) -> Self {
        Self {
            place: place.to_string(),
            why: why.into(),
        }
    }
}

/// Reads the settings: `file` if there is one, then the `ONLYONCE_…` among `variables`, then
/// `flags` by their names in the schema.
pub fn load(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: &[(&'static str, String)],
) -> Result<Config, ConfigError> {
    let mut config = match file {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                ConfigError::new(path.display(), format!("cannot be read: {error}"))
            })?;
            parse(&path.display().to_string(), &text)?
        }
        None => Config::default(),
    };
    for (name, value) in variables {
        let Some(setting) = name.strip_prefix(PREFIX) else {
            continue;
        };
        if NOT_SETTINGS.contains(&name.as_str()) || setting.starts_with("TEST_") {
            continue;
        }
        set(&mut config, &name, &setting.to_ascii_lowercase(), &value)?;
    }
    for (name, value) in flags {
        let place = format!("--{}", name.replace('_', "-"));
        set(&mut config, &place, name, value)?;
    }
    let place = file.map_or_else(|| "settings".to_owned(), |path| path.display().to_string());
    super::check::check(&config, &place)?;
    Ok(config)
}

/// Reads the settings that `text` alone gives; errors call it `file`.
pub fn read(file: &str, text: &str) -> Result<Config, ConfigError> {
    let config = parse(file, text)?;
    super::check::check(&config, file)?;
    Ok(config)
}

/// Reads a file's text.
pub(super) fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        ConfigError::new(format!("{file}:{line}"), explain(error.message()))
    })
}

/// Sets one setting from its text.
fn set(config: &mut Config, place: &str, name: &str, value: &str) -> Result<(), ConfigError> {
    if !OVERRIDES.contains(&name) {
        let near = nearest(name, &OVERRIDES).map_or_else(
            || format!("there are {}", OVERRIDES.join(", ")),
            |near| format!("did you mean {PREFIX}{}?", near.to_ascii_uppercase()),
        );
        return Err(ConfigError::new(
            place,
            format!("there is no such setting; {near}"),
        ));
    }
    let text = format!("{name} = {}", toml::Value::from(value));
    let given: Config =
        toml::from_str(&text).map_err(|error| ConfigError::new(place, explain(error.message())))?;
    macro_rules! take {
        ($($field:ident)+) => {$(
            if given.$field.is_some() {
                config.$field = given.$field;
            }
        )+};
    }
    take!(listen admin admin_token_file upstream store profile ttl namespace instance secret_file drain);
    Ok(())
}

/// An error of the parser, with the nearest right word for a name it does not know.
fn explain(message: &str) -> String {
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if !message.starts_with("unknown field") && !message.starts_with("unknown variant") {
        return message.to_owned();
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
