//! The bounds that are explored: small ones by the tests, large ones by `cargo xtask model`.

use crate::engines::{self, Asked, Ending, Engines, Scenario};
use crate::explore::{Explored, explore, explore_until_broken};
use crate::quorum::{self, Bounds, Quorum};

/// A model within bounds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it is called.
    pub name: &'static str,
    /// What is explored.
    pub model: Modelled,
}

/// Which model.
#[derive(Clone, Debug)]
pub enum Modelled {
    /// Processes and one store.
    Engines(Scenario),
    /// Proposers and three acceptors.
    Quorum(Bounds),
}

impl Plan {
    fn engines(name: &'static str, scenario: Scenario) -> Self {
        let model = Modelled::Engines(scenario);
        Self { name, model }
    }

    fn quorum(name: &'static str, bounds: Bounds) -> Self {
        let model = Modelled::Quorum(bounds);
        Self { name, model }
    }

    /// Seconds in a debug build.
    pub fn small() -> Vec<Self> {
        let (rerun, hold) = (Asked::RERUN, Asked::HOLD);
        let forgotten = Scenario {
            forgets_max: 1,
            ..Scenario::of(&[rerun, rerun])
        };
        let unknown = Scenario {
            endings: vec![Ending::Answers, Ending::Unknown],
            ..Scenario::of(&[rerun, rerun])
        };
        vec![
            Self::engines("rerun", unknown),
            Self::engines("hold", Scenario::of(&[hold, hold])),
            Self::engines("hold and rerun", Scenario::of(&[hold, rerun])),
            Self::engines("two meanings", Scenario::of(&[rerun, rerun.meaning(1)])),
            Self::engines("forget", forgotten),
            Self::quorum("quorum", Bounds::SMALL),
        ]
    }

    /// Minutes in an optimised build.
    pub fn large() -> Vec<Self> {
        let (rerun, hold) = (Asked::RERUN, Asked::HOLD);
        let everything = Scenario {
            endings: Ending::ALL.to_vec(),
            forgets_max: 1,
            ..Scenario::of(&[rerun, rerun])
        };
        let longer = Scenario {
            endings: vec![Ending::Answers, Ending::Unknown],
            leases_max: 2,
            ..Scenario::of(&[rerun, rerun])
        };
        let three = Scenario {
            forgets_max: 1,
            ..Scenario::of(&[rerun, rerun, rerun])
        };
        let held = Scenario::of(&[rerun, rerun, hold]);
        let keys = Scenario {
            endings: vec![Ending::Answers, Ending::Unknown],
            ..Scenario::of(&[rerun, rerun, rerun.of_key(1)])
        };
        vec![
            Self::engines("two processes, every ending", everything),
            Self::engines("two processes, two leases", longer),
            Self::engines("three processes, forget", three),
            Self::engines("three processes, hold and rerun", held),
            Self::engines("three processes, two keys", keys),
            Self::quorum("quorum, admission", Bounds::ADMITTED),
            Self::quorum("quorum, tried again", Bounds::LARGE),
            Self::quorum("quorum, late messages", Bounds::LATE),
        ]
    }

    /// Explores all of it, by so many threads.
    pub fn explore(&self, threads: usize) -> Explored {
        match &self.model {
            Modelled::Engines(scenario) => explore(Engines::new(scenario.clone()), threads),
            Modelled::Quorum(bounds) => explore(Quorum::new(bounds.clone()), threads),
        }
    }
}

/// Explores with a planted bug until a rule is broken.
pub fn planted_in_engines(bug: engines::Bug) -> Explored {
    let scenario = Scenario::of(&[Asked::RERUN, Asked::RERUN]);
    explore_until_broken(Engines::new(scenario).with_bug(bug))
}

/// Explores the quorum with a planted bug until a rule is broken.
pub fn planted_in_quorum(bug: quorum::Bug) -> Explored {
    explore_until_broken(Quorum::new(Bounds::planted(bug)).with_bug(bug))
}
