//! How often each kind was seen, when first and last, and a few examples.

use std::collections::{BTreeMap, VecDeque};

use onlyonce_core::Timestamp;

use super::Sight;

/// Examples that are kept of each kind: the newest.
const EXAMPLES_MAX: usize = 5;

/// How often one kind was seen.
#[derive(Clone, Debug)]
pub struct Tallied {
    /// How often.
    pub count: u64,
    /// When first.
    pub first: Timestamp,
    /// When last.
    pub last: Timestamp,
    /// The newest, the last one last; none of what is ordinary.
    pub examples: VecDeque<Example>,
}

/// One request of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// When.
    pub at: Timestamp,
    /// How logs name its key.
    pub key: Option<Box<str>>,
    /// What would have been wrong with it.
    pub detail: Option<Box<str>>,
}

#[derive(Default)]
pub(super) struct Tally(BTreeMap<Sight, Tallied>);

impl Tally {
    pub(super) fn all(&self) -> &BTreeMap<Sight, Tallied> {
        &self.0
    }

    pub(super) fn count(
        &mut self,
        sight: Sight,
        at: Timestamp,
        key: Option<&str>,
        detail: Option<&str>,
    ) {
        let tallied = self.0.entry(sight).or_insert_with(|| Tallied {
            count: 0,
            first: at,
            last: at,
            examples: VecDeque::new(),
        });
        tallied.count += 1;
        tallied.last = at;
        if sight.has_examples() {
            if tallied.examples.len() == EXAMPLES_MAX {
                tallied.examples.pop_front();
            }
            tallied.examples.push_back(Example {
                at,
                key: key.map(Into::into),
                detail: detail.map(Into::into),
            });
        }
    }
}
