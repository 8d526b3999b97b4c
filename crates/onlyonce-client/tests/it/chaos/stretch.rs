//! How much longer than usual clients live: a run comes to its end on any machine, because lives
//! grow while clients are killed before they got anything done.

pub(super) struct Stretch {
    pub(super) factor: u32,
    pub(super) longest: u32,
    done: u64,
}

impl Stretch {
    pub(super) fn new() -> Self {
        Self {
            factor: 1,
            longest: 1,
            done: 0,
        }
    }

    /// Takes note of a life after which so much is done in all. That only grows, and not for ever:
    /// so lives do not get shorter and longer without end.
    pub(super) fn after(&mut self, done: u64) {
        self.factor = if done > self.done {
            (self.factor / 2).max(1)
        } else {
            self.factor * 2
        };
        self.done = done;
        self.longest = self.longest.max(self.factor);
    }
}
