//! Explores a model to its end, and says how much of it there was.

use std::fmt::{self, Debug};
use std::hash::Hash;

use stateright::{Checker, CheckerBuilder, Expectation, HasDiscoveries, Model, Path};

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps from one state to another, or to the same.
    pub steps: usize,
    /// How many steps the longest of the shortest ways to a state has.
    pub depth: usize,
    /// How many rules were checked in every state.
    pub rules: usize,
    /// The rules that were broken, each with a shortest way there.
    pub broken: Vec<(&'static str, String)>,
    /// What must be possible, and is.
    pub seen: Vec<&'static str>,
    /// What must be possible, and is not.
    pub unseen: Vec<&'static str>,
}

impl Explored {
    /// Whether no rule was broken.
    pub fn is_sound(&self) -> bool {
        self.broken.is_empty()
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} states, {} steps, depth {}; {} rules, {} broken",
            self.states,
            self.steps,
            self.depth,
            self.rules,
            self.broken.len()
        )?;
        writeln!(f, "seen: {}", self.seen.join(", "))?;
        if !self.unseen.is_empty() {
            writeln!(f, "not seen: {}", self.unseen.join(", "))?;
        }
        for (rule, way) in &self.broken {
            writeln!(f, "\nbroken: {rule}\n{way}")?;
        }
        Ok(())
    }
}

/// Explores all of it, by so many threads.
pub fn explore<M>(model: M, threads: usize) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Clone + Hash + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq,
{
    run(model.checker().threads(threads))
}

/// Explores until a rule is broken.
pub fn explore_until_broken<M>(model: M) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Clone + Hash + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq,
{
    run(model.checker().finish_when(HasDiscoveries::AnyFailures))
}

fn run<M>(builder: CheckerBuilder<M>) -> Explored
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Clone + Hash + PartialEq + Send + Sync,
    M::Action: Debug + Clone + PartialEq,
{
    let checker = builder.spawn_bfs().join();
    let mut found = checker.discoveries();
    let mut explored = Explored {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        rules: 0,
        broken: Vec::new(),
        seen: Vec::new(),
        unseen: Vec::new(),
    };
    for property in checker.model().properties() {
        let found = found.remove(property.name);
        match (property.expectation, found) {
            (Expectation::Sometimes, Some(_)) => explored.seen.push(property.name),
            (Expectation::Sometimes, None) => explored.unseen.push(property.name),
            (Expectation::Always | Expectation::Eventually, found) => {
                explored.rules += 1;
                explored
                    .broken
                    .extend(found.map(|path| (property.name, way(path))));
            }
        }
    }
    explored
}

/// The steps to a state, one per line.
fn way<S, A: Debug>(path: Path<S, A>) -> String {
    let steps = path.into_actions();
    let lines: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
    lines.join("\n")
}
