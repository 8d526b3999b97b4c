//! What is never printed: keys, and the values of headers that carry credentials.

use http::HeaderName;

use super::args::HeaderLine;

const HIDDEN: &str = "****";
/// Words in a header's name that make its value a credential.
const TELLING: [&str; 7] = [
    "auth", "cookie", "key", "pass", "secret", "session", "token",
];
/// Shorter values are found in any text; hiding them would hide the answer.
const SECRET_BYTES_MIN: usize = 4;

/// Takes secrets out of what is shown.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    texts: Vec<String>,
}

impl Secrets {
    pub(crate) fn of<'a>(lines: impl Iterator<Item = &'a HeaderLine>) -> Self {
        let mut secrets = Self::default();
        for line in lines.filter(|line| is_telling(&line.name)) {
            let value = String::from_utf8_lossy(line.value.as_bytes());
            secrets.add(&value);
            // A token may be echoed without its scheme, a cookie without its name.
            for part in value.split([' ', ';', '=', ',']) {
                secrets.add(part);
            }
        }
        secrets
    }

    /// Hides `text` from now on, in either case.
    pub(crate) fn add(&mut self, text: &str) {
        let text = text.trim_matches('"').to_ascii_lowercase();
        if text.len() >= SECRET_BYTES_MIN && !self.texts.contains(&text) {
            self.texts.push(text);
            // A secret within a secret must not leave the rest of the longer one behind.
            self.texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        }
    }

    pub(crate) fn hide(&self, text: &str) -> String {
        let mut shown = text.to_owned();
        for secret in &self.texts {
            // Lower case in ASCII keeps every offset; from the end, so does a replacement.
            let lower = shown.to_ascii_lowercase();
            for (at, _) in lower.rmatch_indices(secret.as_str()) {
                shown.replace_range(at..at + secret.len(), HIDDEN);
            }
        }
        shown
    }
}

fn is_telling(name: &HeaderName) -> bool {
    TELLING.iter().any(|word| name.as_str().contains(word))
}

#[cfg(test)]
mod tests {
    use super::Secrets;
    use crate::verify::args::HeaderLine;

    #[test]
    fn credentials_are_hidden_whole_and_in_parts_and_other_headers_are_not() {
        let lines: Vec<HeaderLine> = ["Authorization: Bearer abc123", "Accept: text/html"]
            .map(|line| line.parse().unwrap())
            .into();

        let secrets = Secrets::of(lines.iter());

        assert_eq!(secrets.hide("Bearer abc123!"), "****!");
        assert_eq!(secrets.hide("you are ABC123"), "you are ****");
        assert_eq!(secrets.hide("text/html"), "text/html");
    }

    #[test]
    fn a_secret_within_a_secret_leaves_nothing_of_the_longer_one() {
        let mut secrets = Secrets::default();
        for secret in ["abcd", "xabcdy", "****"] {
            secrets.add(secret);
        }

        assert_eq!(secrets.hide("xabcdy ABCD é abcd"), "**** **** é ****");
    }
}
