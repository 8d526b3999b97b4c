//! What everyone who uses the store agreed on: few and small values, kept for ever, in a file of
//! their own that is written whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::folder::{refused, write_whole};
use onlyonce_storekit::OpenError;

pub(super) const FILE: &str = "agreed";

pub(super) struct Agreed {
    path: PathBuf,
    values: BTreeMap<String, Vec<u8>>,
}

impl Agreed {
    pub(super) fn load(folder: &Path) -> Result<Self, OpenError> {
        let path = folder.join(FILE);
        let values = match fs::read_to_string(&path) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(BTreeMap::new()),
            Err(_) => None,
        };
        match values {
            Some(values) => Ok(Self { path, values }),
            None => Err(refused(format!(
                "file {} cannot be read or is damaged: restore it from a copy; without it, stored keys cannot be found again",
                path.display()
            ))),
        }
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The value under `name`, if there is one.
    pub(super) fn get(&self, name: &str) -> Option<Vec<u8>> {
        self.values.get(name).cloned()
    }

    /// The value under `name`: the one that is there, or else the offer, once it is durable.
    pub(super) fn agree(&mut self, name: &str, offer: &[u8]) -> io::Result<Vec<u8>> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        self.values.insert(name.to_owned(), offer.to_vec());
        match write_whole(&self.path, text(&self.values).as_bytes()) {
            Ok(()) => Ok(offer.to_vec()),
            Err(error) => {
                self.values.remove(name);
                Err(error.into())
            }
        }
    }
}

/// A line for each value, name and value in hexadecimal digits, and a checksum.
fn text(values: &BTreeMap<String, Vec<u8>>) -> String {
    let mut text = String::new();
    for (name, value) in values {
        text.push_str(&format!("{} {}\n", hex(name.as_bytes()), hex(value)));
    }
    let sum = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("{sum:08x}\n"));
    text
}

fn parse(text: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let (lines, sum) = text.strip_suffix('\n')?.rsplit_once('\n').map_or_else(
        || ("", text.trim_end()),
        |(_, sum)| (&text[..text.len() - sum.len() - 1], sum),
    );
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(lines.as_bytes()) {
        return None;
    }
    lines
        .lines()
        .map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((String::from_utf8(bytes(name)?).ok()?, bytes(value)?))
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes whatever is written");
        text
    })
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
