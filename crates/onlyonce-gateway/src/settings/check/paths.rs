//! Whether one route takes everything that another one could.

use crate::config::Match;

/// Stands for whatever a parameter may be; no path that somebody writes has it.
const ANYTHING: &str = "\u{f8ff}";

/// Whether every request that `later` matches is matched by `earlier`.
pub(super) fn is_shadowed(later: &Match, earlier: &Match) -> bool {
    let takes_method = earlier.method.is_none() || earlier.method == later.method;
    let takes_all = |matcher: matchit::Router<()>| {
        let paths = examples(&later.path);
        paths.iter().all(|path| matcher.at(path).is_ok())
    };
    // A pattern that cannot be read is reported by the table of routes.
    takes_method && earlier.matcher().is_ok_and(takes_all)
}

/// Paths that `pattern` matches and that are as unlike as it allows.
fn examples(pattern: &str) -> Vec<String> {
    let mut filled = String::new();
    let mut rest = pattern;
    while let Some(start) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(start);
        filled.push_str(before);
        // A doubled brace is one that is meant.
        if from.starts_with("{{") || from.starts_with("}}") {
            filled.push_str(&from[..1]);
            rest = &from[2..];
            continue;
        }
        let end = from.find('}').map_or(from.len(), |end| end + 1);
        if from.starts_with("{*") {
            let deep = format!("{filled}{ANYTHING}/{ANYTHING}");
            filled.push_str(ANYTHING);
            return vec![filled, deep];
        }
        filled.push_str(ANYTHING);
        rest = &from[end..];
    }
    filled.push_str(rest);
    vec![filled]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shadows(earlier: &str, later: &str) -> bool {
        is_shadowed(&later.parse().unwrap(), &earlier.parse().unwrap())
    }

    #[test]
    fn a_route_is_shadowed_by_one_that_takes_all_of_its_requests() {
        for (earlier, later) in [
            ("POST /a", "POST /a"),
            ("* /a", "POST /a"),
            ("POST /a/{id}", "POST /a/{name}"),
            ("POST /a/{id}", "POST /a/b"),
            ("* /a/{*rest}", "POST /a/{id}/pay"),
            ("* /a/{*rest}", "* /a/{*all}"),
            ("* /{*rest}", "POST /a"),
        ] {
            assert!(shadows(earlier, later), "{earlier} before {later}");
        }
    }

    #[test]
    fn a_route_is_not_shadowed_by_one_that_takes_only_some_of_them() {
        for (earlier, later) in [
            ("POST /a", "* /a"),
            ("POST /a", "PUT /a"),
            ("POST /a/b", "POST /a/{id}"),
            ("POST /a/{id}", "POST /a/{*rest}"),
            ("POST /a/p{id}", "POST /a/{id}"),
            ("POST /a/{id}", "POST /a/{id}/pay"),
            ("POST /a/{*rest}", "POST /a"),
        ] {
            assert!(!shadows(earlier, later), "{earlier} before {later}");
        }
    }
}
