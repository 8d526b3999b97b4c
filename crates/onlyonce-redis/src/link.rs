//! One connection that many callers share: what they ask at the same time goes together, without
//! anybody waiting for more. It is opened when first needed, and again once it is lost.

use std::sync::Mutex;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Pipeline, Value};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use super::dial::Dial;
use super::lock;
use super::trouble::{Trouble, refusal};

pub(super) struct Link {
    dial: Dial,
    line: Mutex<Line>,
}

struct Line {
    state: State,
    /// Counts the connections, so that only the one that failed is given up.
    number: u64,
}

type Opening = Shared<BoxFuture<'static, Result<MultiplexedConnection, Trouble>>>;

enum State {
    Shut,
    /// Everyone who comes meanwhile waits for the same attempt, and hears of its failure.
    Opening(Opening),
    Open(MultiplexedConnection),
}

impl Link {
    pub(super) fn new(dial: Dial) -> Self {
        Self {
            dial,
            line: Mutex::new(Line {
                state: State::Shut,
                number: 0,
            }),
        }
    }

    /// Sends all commands in one go. A refusal is among the answers; an error means that nothing
    /// is known of any of them.
    pub(super) async fn ask(&self, commands: &Pipeline) -> Result<Vec<Value>, Trouble> {
        let (mut connection, number) = self.connection().await?;
        let asked = connection.send_packed_commands(commands, 0, commands.len());
        match asked.await {
            Ok(answers) => {
                let mut refusals = answers.iter().filter_map(refusal);
                if refusals.any(|trouble| trouble.is_demotion()) {
                    self.give_up(number);
                }
                Ok(answers)
            }
            Err(error) => {
                let trouble = Trouble::asking(&error);
                // Also after a time-out: a connection may lead nowhere without anybody noticing.
                self.give_up(number);
                Err(trouble)
            }
        }
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), Trouble> {
        let (opening, number) = {
            let mut line = lock(&self.line);
            let opening = match &line.state {
                State::Open(connection) => return Ok((connection.clone(), line.number)),
                State::Opening(opening) => opening.clone(),
                State::Shut => {
                    let dial = self.dial.clone();
                    let opening = async move { dial.open().await }.boxed().shared();
                    line.state = State::Opening(opening.clone());
                    line.number += 1;
                    opening
                }
            };
            (opening, line.number)
        };
        let opened = opening.await;
        let mut line = lock(&self.line);
        if line.number == number && matches!(line.state, State::Opening(_)) {
            line.state = match &opened {
                Ok(connection) => State::Open(connection.clone()),
                Err(_) => State::Shut,
            };
        }
        Ok((opened?, number))
    }

    fn give_up(&self, number: u64) {
        let mut line = lock(&self.line);
        if line.number == number {
            line.state = State::Shut;
        }
    }
}
