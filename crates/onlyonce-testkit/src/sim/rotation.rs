//! Rotation of the slot secret, one step of it a run: processes with the old secret are replaced by
//! such with both, or those by such with the new one alone. Each key then has two slots, and all
//! processes of a run know one of them.

use onlyonce_core::engine::{Builder, FormerSecret};
use onlyonce_core::{Key, Scope, Slot, SlotSecret};

/// Which slot secrets a process has.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Secrets {
    /// The only one, where none is rotated.
    #[default]
    Old,
    Both,
    New,
}

impl Secrets {
    /// Whether it finds the records of a half: 0 is under the old secret, 1 under the new one.
    pub(super) const fn find(self, half: usize) -> bool {
        match self {
            Self::Old => half == 0,
            Self::Both => true,
            Self::New => half == 1,
        }
    }
}

pub(super) struct Rotation {
    old: SlotSecret,
    new: SlotSecret,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    /// From the old one to both.
    First,
    /// From both to the new one.
    Last,
}

impl Rotation {
    pub(super) fn of(seed: u64) -> Self {
        Self {
            old: SlotSecret::from_bytes([1; SlotSecret::BYTES]),
            new: SlotSecret::from_bytes([2; SlotSecret::BYTES]),
            step: if seed.is_multiple_of(2) {
                Step::First
            } else {
                Step::Last
            },
        }
    }

    /// What a node's first process has, and what those have that replace it.
    pub(super) const fn secrets(&self, is_first: bool) -> Secrets {
        match (self.step, is_first) {
            (Step::First, true) => Secrets::Old,
            (Step::First, false) | (Step::Last, true) => Secrets::Both,
            (Step::Last, false) => Secrets::New,
        }
    }

    /// The half that every process of this run finds.
    pub(super) const fn common_half(&self) -> usize {
        match self.step {
            Step::First => 0,
            Step::Last => 1,
        }
    }

    pub(super) fn configure(&self, builder: Builder, secrets: Secrets) -> Builder {
        match secrets {
            Secrets::Old => builder.secret(self.old.clone()),
            Secrets::New => builder.secret(self.new.clone()),
            Secrets::Both => builder
                .secret(self.new.clone())
                .rotate_from(FormerSecret::Given(self.old.clone())),
        }
    }

    /// The slots of the keys: first all under the old secret, then all under the new one.
    pub(super) fn slots(&self, scope: &Scope, keys: &[Key]) -> Vec<Slot> {
        let halves = [&self.old, &self.new].into_iter();
        halves
            .flat_map(|secret| keys.iter().map(|key| secret.slot(scope, key)))
            .collect()
    }
}
