//! Who listens to a server: one connection for all waiters, one subscription for all waiters of a
//! slot. A lost connection wakes everyone, for what was said meanwhile was missed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ::redis::aio::MultiplexedConnection;
use ::redis::{PushInfo, PushKind, Value};
use tokio::sync::{mpsc, oneshot, watch};

use super::dial::Dial;
use super::trouble::Trouble;
use listener::Listener;

mod listener;

pub(super) struct Ear {
    dial: Dial,
    /// To the task that listens, once there is something to listen to.
    orders: OnceLock<mpsc::UnboundedSender<Order>>,
}

enum Order {
    Listen {
        channel: Vec<u8>,
        listening: oneshot::Sender<Result<Listening, Trouble>>,
    },
    Stop(Heard),
}

/// A channel over one connection.
#[derive(Clone)]
struct Heard {
    channel: Vec<u8>,
    connection: u64,
}

/// A subscription that the server has acknowledged; it ends when the last one is dropped.
pub(super) struct Listening {
    rung: watch::Receiver<()>,
    heard: Heard,
    orders: mpsc::UnboundedSender<Order>,
}

impl Listening {
    /// Returns once something was said since the subscription, or may have been missed.
    pub(super) async fn rung(&mut self) {
        // An error means that the connection is gone.
        drop(self.rung.changed().await);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.orders.send(Order::Stop(self.heard.clone())));
    }
}

impl Ear {
    pub(super) fn new(dial: Dial) -> Self {
        Self {
            dial,
            orders: OnceLock::new(),
        }
    }

    /// Subscribes, and waits for the acknowledgement. Whether channels are sharded is the same
    /// for all of a store.
    pub(super) async fn listen(
        &self,
        channel: Vec<u8>,
        sharded: bool,
    ) -> Result<Listening, Trouble> {
        let orders = self.orders.get_or_init(|| {
            let (orders, ordered) = mpsc::unbounded_channel();
            let listener = Listener {
                dial: self.dial.clone(),
                sharded,
                orders: orders.downgrade(),
                line: Arc::default(),
            };
            tokio::spawn(listener.run(ordered));
            orders
        });
        let (listening, listens) = oneshot::channel();
        let order = Order::Listen { channel, listening };
        orders.send(order).map_err(|_| Trouble::Broken)?;
        listens.await.unwrap_or(Err(Trouble::Broken))
    }
}

/// The channels of the connection that is open. The connection's own task rings them.
#[derive(Default)]
struct Line {
    connection: Option<MultiplexedConnection>,
    number: u64,
    channels: BTreeMap<Vec<u8>, Channel>,
}

struct Channel {
    listeners: usize,
    ring: watch::Sender<()>,
}

impl Line {
    /// Dropping the bells wakes everyone.
    fn lose(&mut self, number: u64) {
        if self.number == number {
            self.connection = None;
            self.channels.clear();
        }
    }

    fn hear(&mut self, number: u64, push: &PushInfo) {
        let channel = match push.data.first() {
            Some(Value::BulkString(channel)) => self.channels.get(channel),
            Some(_) | None => None,
        };
        match (&push.kind, channel) {
            (PushKind::Message | PushKind::SMessage, Some(channel)) => {
                channel.ring.send_replace(());
            }
            // The hash slot went to another server: it ended what nobody here did.
            (PushKind::SUnsubscribe, Some(_)) | (PushKind::Disconnection, _) => self.lose(number),
            _ => {}
        }
    }
}
