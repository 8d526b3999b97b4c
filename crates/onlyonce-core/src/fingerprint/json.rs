//! JSON with one spelling per value: RFC 8785, except that numbers keep their written digits.
//! Member order, whitespace and escapes must not make a retry conflict, while 9007199254740993 must
//! never equal 9007199254740992. One pass; what is already canonical is copied in whole runs.

mod number;
mod string;

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use super::rule::Numbers;
use string::{Name, escaped_char, push_char, string_stops, units};

/// Arrays and objects inside one another; bounds the recursion.
const DEPTH_MAX: usize = 128;

/// Members of objects being read for which there is room without an allocation.
const MEMBERS_USUAL: usize = 16;

/// The canonical form of `input`, which most texts have already; `None` for anything but JSON in UTF-8 of at most [`DEPTH_MAX`]
/// levels without lone surrogate escapes. With `trim`, string values lose surrounding whitespace.
///
/// Repeated names all stay, in their order: a receiver may heed the first, the last or all of them.
pub(crate) fn canonicalise(input: &[u8], trim: bool) -> Option<Cow<'_, [u8]>> {
    spelled(input, trim, Numbers::Digits)
}

/// The same, and numbers as `numbers` says. One whose exponent has more than 18 digits has no value.
pub(crate) fn spelled(input: &[u8], trim: bool, numbers: Numbers) -> Option<Cow<'_, [u8]>> {
    let text = str::from_utf8(input).ok()?;
    let mut pass = Pass {
        text,
        input,
        at: 0,
        copied: 0,
        out: Vec::new(),
        members: SmallVec::new(),
        spare: Vec::new(),
        trim,
        numbers,
    };
    pass.value(0)?;
    pass.skip_space();
    if pass.at < input.len() {
        return None;
    }
    if pass.copied == 0 {
        return Some(Cow::Borrowed(input));
    }
    pass.copy();
    Some(Cow::Owned(pass.out))
}

/// One pass over a text. Canonical bytes are only stepped over and reach `out` at the next change.
struct Pass<'a> {
    text: &'a str,
    /// `text` as bytes.
    input: &'a [u8],
    /// The next byte to read; never beyond the end of `input`.
    at: usize,
    /// What lies before this in `input` is in `out` or left out; from here to `at` it is canonical.
    copied: usize,
    out: Vec<u8>,
    /// The members so far of every object being read, the innermost last.
    members: SmallVec<[Member<'a>; MEMBERS_USUAL]>,
    /// Where members are put in order; kept for the next object.
    spare: Vec<u8>,
    trim: bool,
    numbers: Numbers,
}

/// A member of an object being read.
struct Member<'a> {
    name: Name<'a>,
    /// Where its name, colon and value lie in the canonical text.
    span: Range<usize>,
}

impl<'a> Pass<'a> {
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.token()? {
            b'"' if self.trim => self.trimmed_string(),
            b'"' => self.string().map(drop),
            b'{' if depth < DEPTH_MAX => self.object(depth + 1),
            b'[' if depth < DEPTH_MAX => self.array(depth + 1),
            b'-' | b'0'..=b'9' => match self.numbers {
                Numbers::Digits => self.number(),
                Numbers::Value => self.number_by_value(),
            },
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => None,
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        let first = self.members.len();
        let mut in_order = true;
        self.at += 1;
        let mut end = self.token()? == b'}';
        while !end {
            in_order &= self.name(first)?;
            self.value(depth)?;
            let end_at = self.out_at();
            self.members.last_mut()?.span.end = end_at;
            end = self.comma_or(b'}')?;
        }
        if !in_order {
            self.sort_members(first);
        }
        self.members.truncate(first);
        self.at += 1;
        Some(())
    }

    /// Reads a member's name and colon, and tells whether it keeps to the order since `first`.
    fn name(&mut self, first: usize) -> Option<bool> {
        if self.token()? != b'"' {
            return None;
        }
        let (start, out_start) = (self.at, self.out_at());
        let escaped = self.string()?;
        let name = Name::new(&self.text[start + 1..self.at - 1], escaped);
        if self.token()? != b':' {
            return None;
        }
        self.at += 1;
        let previous = self.members[first..].last();
        let in_order = previous.is_none_or(|previous| previous.name.cmp(&name).is_le());
        self.members.push(Member {
            name,
            span: out_start..out_start,
        });
        Some(in_order)
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        let mut end = self.token()? == b']';
        while !end {
            self.value(depth)?;
            end = self.comma_or(b']')?;
        }
        self.at += 1;
        Some(())
    }

    /// Steps over a comma; true, without a step, at `close`.
    fn comma_or(&mut self, close: u8) -> Option<bool> {
        let token = self.token()?;
        if token == b',' {
            self.at += 1;
        }
        (token == b',' || token == close).then_some(token == close)
    }

    /// Puts the members from `first` on in order: by UTF-16 code units, equal names as they came.
    /// A level copies what lies within it once, so the depth bounds this work too.
    fn sort_members(&mut self, first: usize) {
        self.copy();
        let members = &mut self.members[first..];
        let start = members[0].span.start;
        members.sort_by(|a, b| a.name.cmp(&b.name));
        self.spare.clear();
        for member in members {
            self.spare.extend_from_slice(&self.out[member.span.clone()]);
            self.spare.push(b',');
        }
        // The commas between them are one less.
        self.spare.pop();
        self.out.truncate(start);
        self.out.extend_from_slice(&self.spare);
    }

    /// Steps over a string and tells whether it has escapes.
    fn string(&mut self) -> Option<bool> {
        let mut escaped = false;
        self.at += 1;
        loop {
            self.skip_plain();
            match self.peek()? {
                b'"' => break,
                b'\\' => self.escape()?,
                _ => return None,
            }
            escaped = true;
        }
        self.at += 1;
        Some(escaped)
    }

    fn trimmed_string(&mut self) -> Option<()> {
        let (start, out_start) = (self.at, self.out_at());
        self.string()?;
        let raw = &self.text[start + 1..self.at - 1];
        let decoded: Result<String, _> = char::decode_utf16(units(raw)).collect();
        let decoded = decoded.ok()?;
        let trimmed = decoded.trim();
        if trimmed.len() < decoded.len() {
            self.copy();
            self.out.truncate(out_start);
            self.out.push(b'"');
            for char in trimmed.chars() {
                push_char(&mut self.out, char);
            }
            self.out.push(b'"');
        }
        Some(())
    }

    /// Brings the escape at `at` to its canonical spelling.
    fn escape(&mut self) -> Option<()> {
        match self.input.get(self.at + 1)? {
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'/' => {
                self.leave_out(1);
                self.at += 1;
            }
            b'u' => {
                let (char, width) = escaped_char(&self.input[self.at..])?;
                self.leave_out(width);
                push_char(&mut self.out, char);
            }
            _ => return None,
        }
        Some(())
    }

    fn number_by_value(&mut self) -> Option<()> {
        let (start, out_start) = (self.at, self.out_at());
        self.number()?;
        let written = &self.text[start..self.at];
        let value = number::by_value(written)?;
        if value != written {
            self.copy();
            self.out.truncate(out_start);
            self.out.extend_from_slice(value.as_bytes());
        }
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        if self.peek()? == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// Steps over one digit or more.
    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        self.input[self.at..].strip_prefix(word)?;
        self.at += word.len();
        Some(())
    }

    /// Steps over bytes of a string that stand for themselves, eight at a time.
    fn skip_plain(&mut self) {
        while let Some(chunk) = self.input[self.at..].first_chunk() {
            let stops = string_stops(u64::from_le_bytes(*chunk));
            if stops != 0 {
                self.at += stops.trailing_zeros() as usize / 8;
                return;
            }
            self.at += chunk.len();
        }
        while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..b' ')) {
            self.at += 1;
        }
    }

    /// The next byte that is not whitespace, which is left out.
    fn token(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        if byte > b' ' {
            return Some(byte);
        }
        self.skip_space();
        self.peek()
    }

    fn skip_space(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let rest = &self.input[self.at..];
        let width = rest.iter().position(|byte| !is_space(byte));
        match width.unwrap_or(rest.len()) {
            0 => {}
            width => self.leave_out(width),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    /// Where the next canonical byte will lie in `out`.
    fn out_at(&self) -> usize {
        self.out.len() + self.at - self.copied
    }

    /// Copies the run that ends at `at`.
    fn copy(&mut self) {
        if self.out.capacity() == 0 {
            // Enough for good, but for some numbers: no other canonical spelling is longer.
            self.out.reserve_exact(self.input.len());
        }
        self.out
            .extend_from_slice(&self.input[self.copied..self.at]);
        self.copied = self.at;
    }

    /// Leaves out the next `width` bytes.
    fn leave_out(&mut self, width: usize) {
        self.copy();
        self.at += width;
        self.copied = self.at;
    }
}
