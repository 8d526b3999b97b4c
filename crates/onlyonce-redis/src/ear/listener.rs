//! The task that listens: makes and ends subscriptions, one batch of orders after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, Pipeline, PushInfo, Value};
use tokio::sync::{mpsc, oneshot, watch};

use super::super::dial::Dial;
use super::super::lock;
use super::super::trouble::{Trouble, refusal};
use super::{Channel, Heard, Line, Listening, Order};

/// So many subscriptions are made in one go.
const ORDERS_MAX: usize = 256;

pub(super) struct Listener {
    pub(super) dial: Dial,
    pub(super) sharded: bool,
    /// For the listeners to say that they are done; does not keep the task alive.
    pub(super) orders: mpsc::WeakUnboundedSender<Order>,
    pub(super) line: Arc<Mutex<Line>>,
}

type Waiting = BTreeMap<Vec<u8>, Vec<oneshot::Sender<Result<Listening, Trouble>>>>;

impl Listener {
    /// One batch of orders after the other: so what the server is told has one order too.
    pub(super) async fn run(self, mut ordered: mpsc::UnboundedReceiver<Order>) {
        let mut orders = Vec::new();
        while ordered.recv_many(&mut orders, ORDERS_MAX).await > 0 {
            let (mut new, mut over) = (Waiting::new(), Vec::new());
            for order in orders.drain(..) {
                match order {
                    Order::Listen { channel, listening } => {
                        new.entry(channel).or_default().push(listening);
                    }
                    Order::Stop(heard) => over.extend(self.stop(heard)),
                }
            }
            // Before the new ones: a channel may be in both.
            self.unsubscribe(&over).await;
            self.subscribe(new).await;
        }
    }

    /// The channel, if this was its last listener.
    fn stop(&self, heard: Heard) -> Option<Vec<u8>> {
        let mut line = lock(&self.line);
        if line.number != heard.connection {
            return None;
        }
        let channel = line.channels.get_mut(&heard.channel)?;
        channel.listeners -= 1;
        if channel.listeners > 0 {
            return None;
        }
        line.channels.remove(&heard.channel);
        Some(heard.channel)
    }

    async fn unsubscribe(&self, channels: &[Vec<u8>]) {
        let connection = lock(&self.line).connection.clone();
        if let Some(connection) = connection
            && !channels.is_empty()
        {
            let word = if self.sharded {
                "SUNSUBSCRIBE"
            } else {
                "UNSUBSCRIBE"
            };
            // If it fails, the connection is lost and the subscriptions with it.
            drop(self.tell(connection, word, channels.iter()).await);
        }
    }

    async fn subscribe(&self, mut new: Waiting) {
        new.retain(|channel, waiting| !self.join(channel, waiting));
        if new.is_empty() {
            return;
        }
        let told = async {
            let connection = self.connection().await?;
            let word = if self.sharded {
                "SSUBSCRIBE"
            } else {
                "SUBSCRIBE"
            };
            self.tell(connection, word, new.keys()).await
        };
        match told.await {
            Ok(answers) => {
                for ((channel, mut waiting), answer) in new.into_iter().zip(answers) {
                    match refusal(&answer) {
                        Some(trouble) => fail(waiting, &trouble),
                        None => {
                            self.add(&channel);
                            self.join(&channel, &mut waiting);
                        }
                    }
                }
            }
            Err(trouble) => {
                for waiting in new.into_values() {
                    fail(waiting, &trouble);
                }
            }
        }
    }

    async fn tell(
        &self,
        mut connection: MultiplexedConnection,
        word: &str,
        channels: impl Iterator<Item = &Vec<u8>>,
    ) -> Result<Vec<Value>, Trouble> {
        let mut commands = Pipeline::new();
        for channel in channels {
            let mut command = Cmd::new();
            command.arg(word).arg(channel);
            commands.add_command(command);
        }
        let number = lock(&self.line).number;
        let told = connection.send_packed_commands(&commands, 0, commands.len());
        told.await.map_err(|error| {
            lock(&self.line).lose(number);
            Trouble::asking(&error)
        })
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Trouble> {
        let number = {
            let mut line = lock(&self.line);
            if let Some(connection) = &line.connection {
                return Ok(connection.clone());
            }
            line.number += 1;
            line.channels.clear();
            line.number
        };
        let line = Arc::downgrade(&self.line);
        let on_push = Box::new(move |push: PushInfo| {
            if let Some(line) = line.upgrade() {
                lock(&line).hear(number, &push);
            }
        });
        let connection = self.dial.open_to_listen(on_push).await?;
        lock(&self.line).connection = Some(connection.clone());
        Ok(connection)
    }

    fn add(&self, channel: &[u8]) {
        let mut line = lock(&self.line);
        // Lost meanwhile, there is nothing to listen to.
        if line.connection.is_some() {
            let (ring, _) = watch::channel(());
            let channel = channel.to_owned();
            line.channels
                .insert(channel, Channel { listeners: 0, ring });
        }
    }

    /// Lets `waiting` listen to a channel that is subscribed to; false if it is not.
    fn join(
        &self,
        channel: &[u8],
        waiting: &mut Vec<oneshot::Sender<Result<Listening, Trouble>>>,
    ) -> bool {
        let Some(orders) = self.orders.upgrade() else {
            return false;
        };
        let mut joined = Vec::new();
        {
            let mut line = lock(&self.line);
            let connection = line.number;
            let Some(found) = line.channels.get_mut(channel) else {
                return false;
            };
            found.listeners += waiting.len();
            joined.extend(waiting.drain(..).map(|listening| {
                let heard = Heard {
                    channel: channel.to_owned(),
                    connection,
                };
                let rung = found.ring.subscribe();
                let orders = orders.clone();
                (
                    listening,
                    Listening {
                        rung,
                        heard,
                        orders,
                    },
                )
            }));
        }
        for (waiting, listening) in joined {
            // Whoever has gone away drops it, which orders its end.
            drop(waiting.send(Ok(listening)));
        }
        true
    }
}

fn fail(waiting: Vec<oneshot::Sender<Result<Listening, Trouble>>>, trouble: &Trouble) {
    for listening in waiting {
        drop(listening.send(Err(trouble.clone())));
    }
}
