//! The options of a store's URL: each is taken by name, and what nobody took is an error.

use std::str::FromStr;

use crate::OpenError;

#[cfg(test)]
mod tests;

/// The options of any store's URL that say what goes around the store: not the store's own.
pub const AROUND: [&str; 5] = ["sealed", "plain", "cache", "tier", "compressed"];

/// What follows the question mark of a URL.
pub struct Options {
    left: Vec<(String, String)>,
    asked: Vec<&'static str>,
}

impl Options {
    /// The options of `url`. One given twice is an error.
    pub fn of(url: &str) -> Result<Self, OpenError> {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let mut left: Vec<(String, String)> = Vec::new();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            if left.iter().any(|(known, _)| *known == name) {
                return Err(OpenError::option(&name, "is given twice; once is enough"));
            }
            left.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self {
            left,
            asked: Vec::new(),
        })
    }

    /// Takes the options of these names off `url`: the URL without them, and them.
    pub fn split_off(url: &str, names: &[&str]) -> Result<(String, Self), OpenError> {
        let mut options = Self::of(url)?;
        options.left.retain(|(name, _)| names.contains(&&**name));
        let Some((place, query)) = url.split_once('?') else {
            return Ok((url.to_owned(), options));
        };
        let is_other = |part: &&str| {
            let mut parsed = url::form_urlencoded::parse(part.as_bytes());
            parsed
                .next()
                .is_none_or(|(name, _)| !names.contains(&&*name))
        };
        let others: Vec<_> = query.split('&').filter(is_other).collect();
        let rest = match others.join("&") {
            rest if rest.is_empty() => place.to_owned(),
            rest => format!("{place}?{rest}"),
        };
        Ok((rest, options))
    }

    /// An option's text, which stays to be taken.
    pub fn peek(&self, name: &str) -> Option<&str> {
        let mut left = self.left.iter();
        left.find_map(|(known, value)| (known == name).then_some(&**value))
    }

    /// Takes an option's text.
    pub fn take(&mut self, name: &'static str) -> Option<String> {
        self.asked.push(name);
        let at = self.left.iter().position(|(known, _)| known == name)?;
        Some(self.left.swap_remove(at).1)
    }

    /// Takes an option's value; `want` says what it should have been, as in "a number".
    pub fn parse<T: FromStr>(
        &mut self,
        name: &'static str,
        want: &str,
    ) -> Result<Option<T>, OpenError> {
        let Some(text) = self.take(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(OpenError::option(name, &format!("`{text}` is not {want}"))),
        }
    }

    /// Takes a number of bytes: digits, and KiB, MiB or GiB if it is many.
    pub fn bytes(&mut self, name: &'static str) -> Result<Option<u64>, OpenError> {
        let Some(text) = self.take(name) else {
            return Ok(None);
        };
        let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
        let unit = units.iter().find(|(unit, _)| text.ends_with(unit));
        let (digits, shift) = unit.map_or((&*text, 0), |(unit, shift)| {
            (&text[..text.len() - unit.len()], *shift)
        });
        let number = digits.trim().parse::<u64>().ok();
        let bytes = number.and_then(|number| number.checked_mul(1 << shift));
        let wrong = || format!("`{text}` is not a number of bytes such as 64MiB");
        bytes
            .map(Some)
            .ok_or_else(|| OpenError::option(name, &wrong()))
    }

    /// Ends the reading: whatever is left is an error that names the nearest right word.
    pub fn finish(self) -> Result<(), OpenError> {
        let Some((name, _)) = self.left.first() else {
            return Ok(());
        };
        if AROUND.contains(&&**name) {
            let why = "is for `onlyonce_stores::open`: it goes around a store, and this is a store itself";
            return Err(OpenError::option(name, why));
        }
        let known: Vec<_> = self.asked.iter().copied().chain(AROUND).collect();
        let hint = match nearest(name, &known) {
            Some(near) => format!("; did you mean `{near}`?"),
            None if self.asked.is_empty() => "; this store has none".to_owned(),
            None => format!("; there are {}", self.asked.join(", ")),
        };
        Err(OpenError::option(
            name,
            &format!("there is no such option{hint}"),
        ))
    }
}

/// The word nearest to `found`, if that may be a typo.
///
/// ```
/// assert_eq!(onlyonce_storekit::nearest("uptream", &["listen", "upstream"]), Some("upstream"));
/// assert_eq!(onlyonce_storekit::nearest("colour", &["listen", "upstream"]), None);
/// assert_eq!(onlyonce_storekit::nearest(&"upstream".repeat(100), &["upstream"]), None);
/// ```
pub fn nearest<'a>(found: &str, words: &[&'a str]) -> Option<&'a str> {
    const NEAR: f64 = 0.75;
    /// No slip of the pen is longer, and what takes its time with the length is not worth it.
    const FOUND_BYTES_MAX: usize = 64;
    if found.len() > FOUND_BYTES_MAX {
        return None;
    }
    words
        .iter()
        .map(|word| (strsim::jaro_winkler(found, word), *word))
        .filter(|(near, _)| *near >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}
