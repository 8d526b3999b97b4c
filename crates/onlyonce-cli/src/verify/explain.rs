//! `verify --explain CODE`: what a code of a report means, without a server.

use std::fmt::Write as _;

use super::cause::{CODES, Code};
use super::check::CHECKS;
use super::plan::PlanError;

/// What `name` means: a cause or a check. Some are called the same; then both are explained.
pub(crate) fn explain(name: &str) -> Result<String, PlanError> {
    let mut text = String::new();
    if let Some(code) = Code::named(name) {
        explain_cause(&mut text, code);
    }
    if let Some(check) = CHECKS.iter().find(|check| check.id == name) {
        if !text.is_empty() {
            text.push('\n');
        }
        let usual = check.code;
        write!(
            text,
            "check {}: {}\n\npart of    {}\nfails mostly because of {}: {}\n",
            check.id,
            check.title,
            check.proves.join(", "),
            usual.name(),
            usual.title(),
        )
        .expect("a String takes every text");
    }
    if text.is_empty() {
        return Err(unknown(name));
    }
    Ok(text)
}

fn explain_cause(text: &mut String, code: Code) {
    let checks: Vec<_> = CHECKS.iter().filter(|check| check.code == code).collect();
    let checks: Vec<_> = checks.iter().map(|check| check.id).collect();
    let shown_by = match &checks[..] {
        [] => "any check that meets it".to_owned(),
        ids => ids.join(", "),
    };
    write!(
        text,
        "cause {}: {}\n\nharm       {}\nwhy        {}\nmend       {}\nshown by   {shown_by}\n",
        code.name(),
        code.title(),
        code.harm().words(),
        code.why(),
        code.mend(),
    )
    .expect("a String takes every text");
}

fn unknown(name: &str) -> PlanError {
    let causes = CODES.iter().map(|code| code.name());
    let names = causes.chain(CHECKS.iter().map(|check| check.id));
    let nearest = names.map(|it| (strsim::osa_distance(name, it), it)).min();
    let suggestion = match nearest {
        Some((distance, it)) if distance <= 3 => format!("did you mean {it}?"),
        Some(_) | None => {
            let causes: Vec<_> = CODES.iter().map(|code| code.name()).collect();
            format!("there are {}, and the checks of --list", causes.join(", "))
        }
    };
    PlanError::new(format!("there is no code {name:?}; {suggestion}"))
}
