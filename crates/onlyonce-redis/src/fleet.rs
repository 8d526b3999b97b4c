//! All servers of a store, and the one place that asks them: finds the server of a key, asks once
//! more where an idle connection turned out to be cut or its server is no longer the master, and
//! follows the key where it has moved. A server that cannot be reached is not asked again here: that
//! is for the engine to do.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Pipeline, Value};

use super::cluster::Cluster;
use super::dial::{Dial, To};
use super::node::{Node, Want};
use super::scripts::Step;
use super::trouble::{Remedy, Trouble, refusal};
use super::url::{Place, Servers, Settings};

/// How often something is asked before its trouble is told: once more over a new connection, and
/// in a cluster as long as it takes to learn of a new master that is there already.
const TRIES_MAX: u32 = 2;
const CLUSTER_TRIES_MAX: u32 = 5;
/// How long to wait before asking again, times the number of the try.
const PAUSE: Duration = Duration::from_millis(30);

pub(super) enum Fleet {
    /// One server, or whichever the sentinels call the master.
    One(Arc<Node>),
    Cluster(Cluster),
}

/// Something to ask of the server that has a key.
pub(super) struct Ask {
    pub(super) commands: Arc<Pipeline>,
    pub(super) want: Want,
    /// Whether it may happen twice.
    pub(super) repeatable: bool,
}

impl Ask {
    pub(super) fn new(commands: impl IntoIterator<Item = Cmd>, want: Want) -> Self {
        let mut pipeline = Pipeline::with_capacity(2);
        for command in commands {
            pipeline.add_command(command);
        }
        Self {
            commands: Arc::new(pipeline),
            want,
            repeatable: true,
        }
    }
}

impl Fleet {
    pub(super) fn new(settings: &Arc<Settings>, roots: Option<Vec<u8>>) -> Self {
        let dial = |to| Dial::new(to, Arc::clone(settings), roots.clone());
        let one = |to| Self::One(Arc::new(Node::new(dial(to), settings)));
        match &settings.servers {
            Servers::One(place) => one(To::Place(place.clone())),
            Servers::Sentinel { sentinels, master } => {
                one(To::Master(sentinels.clone(), master.clone()))
            }
            Servers::Cluster(seeds) => {
                let first = dial(To::Place(seeds[0].clone()));
                Self::Cluster(Cluster::new(first, seeds.clone(), Arc::clone(settings)))
            }
        }
    }

    /// Every server that has keys.
    pub(super) async fn masters(&self) -> Result<Vec<Arc<Node>>, Trouble> {
        match self {
            Self::One(node) => Ok(vec![Arc::clone(node)]),
            Self::Cluster(cluster) => cluster.masters().await,
        }
    }

    /// How many connections were opened so far.
    pub(super) fn connected(&self) -> u64 {
        match self {
            Self::One(node) => node.dial.opened(),
            Self::Cluster(cluster) => cluster.connected(),
        }
    }

    /// The server that has this key.
    pub(super) async fn node_of(&self, key: &[u8]) -> Result<Arc<Node>, Trouble> {
        match self {
            Self::One(node) => Ok(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.node_of(key).await,
        }
    }

    fn tries_max(&self) -> u32 {
        match self {
            Self::One(_) => TRIES_MAX,
            Self::Cluster(_) => CLUSTER_TRIES_MAX,
        }
    }

    /// Whether there is nobody else to ask. In a cluster another server may have the key by now.
    fn is_away(&self, trouble: &Trouble) -> bool {
        match self {
            Self::One(_) => matches!(trouble, Trouble::NoConnection(_)),
            Self::Cluster(_) => false,
        }
    }

    /// After a sign that keys are elsewhere than we think.
    pub(super) async fn look_again(&self) {
        match self {
            Self::One(_) => {}
            // If it fails, asking fails too, and tells why.
            Self::Cluster(cluster) => drop(cluster.look_again().await),
        }
    }

    /// Runs a script on its key.
    pub(super) async fn run(
        &self,
        step: &Step,
        key: &[u8],
        args: &[&[u8]],
        want: Want,
        repeatable: bool,
    ) -> Result<Value, Trouble> {
        let mut ask = Ask::new([step.call(key, args)], want);
        ask.repeatable = repeatable;
        let answer = one(self.ask(key, &ask).await?)?;
        match refusal(&answer) {
            Some(trouble) if trouble.is_refusal_with("NOSCRIPT") => {
                let mut ask = Ask::new([step.call_in_full(key, args)], want);
                ask.repeatable = repeatable;
                one(self.ask(key, &ask).await?)
            }
            Some(_) | None => Ok(answer),
        }
    }

    /// Asks the server of `key`. Refusals that are about the key or the commands are among the
    /// answers; those about the server were seen to.
    pub(super) async fn ask(&self, key: &[u8], ask: &Ask) -> Result<Vec<Value>, Trouble> {
        let mut there = None;
        for nth in 1.. {
            let asked = match there.take() {
                None => match self.node_of(key).await {
                    Ok(node) => answered(node.ask(&ask.commands, ask.want).await),
                    Err(trouble) => Err(trouble),
                },
                Some((to, asking)) => self.ask_there(to, asking, ask).await,
            };
            let Err(trouble) = asked else { return asked };
            let remedy = trouble.remedy();
            let is_lost = trouble == Trouble::Broken && !ask.repeatable;
            if nth == self.tries_max() || is_lost || self.is_away(&trouble) {
                return Err(trouble);
            }
            match remedy {
                Remedy::None => return Err(trouble),
                Remedy::Again => {
                    self.look_again().await;
                    // The first time at once: a connection that was idle may just have been cut.
                    if nth > 1 {
                        tokio::time::sleep(PAUSE * nth).await;
                    }
                }
                Remedy::Later => {
                    self.look_again().await;
                    tokio::time::sleep(PAUSE * nth).await;
                }
                Remedy::There { to, ask } => {
                    if !ask {
                        self.look_again().await;
                    }
                    there = Some((to, ask));
                }
            }
        }
        Err(Trouble::Broken)
    }

    async fn ask_there(&self, to: Place, asking: bool, ask: &Ask) -> Result<Vec<Value>, Trouble> {
        let Self::Cluster(cluster) = self else {
            return Err(Trouble::Elsewhere { to, ask: asking });
        };
        let node = cluster.node_at(to);
        if !asking {
            return answered(node.ask(&ask.commands, ask.want).await);
        }
        // While a hash slot moves, its new server takes a command only right behind this word.
        let mut commands = Pipeline::with_capacity(2 * ask.commands.len());
        for command in ask.commands.cmd_iter() {
            commands.cmd("ASKING");
            commands.add_command(command.clone());
        }
        let answers = node.ask(&Arc::new(commands), ask.want).await?;
        answered(Ok(answers.into_iter().skip(1).step_by(2).collect()))
    }
}

/// The answers, unless one of them is about the server.
fn answered(asked: Result<Vec<Value>, Trouble>) -> Result<Vec<Value>, Trouble> {
    let answers = asked?;
    let mut troubles = answers.iter().filter_map(refusal);
    match troubles.find(|trouble| trouble.remedy() != Remedy::None) {
        Some(trouble) => Err(trouble),
        None => Ok(answers),
    }
}

/// The only answer.
fn one(answers: Vec<Value>) -> Result<Value, Trouble> {
    answers.into_iter().next().ok_or(Trouble::Odd)
}
