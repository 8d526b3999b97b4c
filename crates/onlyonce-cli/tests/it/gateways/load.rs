//! Clients that keep ordering, each under a new key, and never give up on one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::process::HOST;

const CLIENTS: usize = 8;
/// A connection that failed is tried again so often, at one gateway after the other.
const TRIES_MAX: usize = 2_000;
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// What all clients did.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) answered: AtomicUsize,
    /// Connections that were refused or broke; each order was then sent again, with its key.
    pub(super) broken: AtomicUsize,
}

/// Clients under way.
pub(super) struct Load {
    clients: Vec<JoinHandle<Vec<String>>>,
    stop: Arc<AtomicBool>,
    pub(super) counts: Arc<Counts>,
}

impl Load {
    /// Clients that order from these addresses in turn.
    pub(super) fn start(urls: &[String]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let clients = (0..CLIENTS)
            .map(|client| {
                let (urls, stop) = (urls.to_vec(), Arc::clone(&stop));
                let counts = Arc::clone(&counts);
                tokio::spawn(async move {
                    let mut keys = Vec::new();
                    while !stop.load(Ordering::SeqCst) {
                        let key = format!("client-{client}-order-{}", keys.len());
                        order(&urls, keys.len() + client, &key, &counts).await;
                        keys.push(key);
                    }
                    keys
                })
            })
            .collect();
        Self {
            clients,
            stop,
            counts,
        }
    }

    /// Ends it; the keys of all orders.
    pub(super) async fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        let mut keys = Vec::new();
        for client in self.clients {
            keys.extend(client.await.unwrap());
        }
        keys
    }
}

/// Orders until there is an answer, which must be a good one: only a connection that was refused
/// or broke is tried again, at the other gateway and with the same key.
async fn order(urls: &[String], first: usize, key: &str, counts: &Counts) {
    // A connection of its own for each try: a pooled one may close as it is used.
    let client = reqwest::Client::builder()
        .pool_max_idle_per_host(0)
        .build()
        .unwrap();
    for turn in first..first + TRIES_MAX {
        let url = &urls[turn % urls.len()];
        let request = client.post(url).header("host", HOST);
        let request = request.header("idempotency-key", key);
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(_) => {
                counts.broken.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
        };
        assert_eq!(answer.status(), 201, "{key}");
        assert_eq!(answer.text().await.unwrap(), format!("{key} run 1"));
        counts.answered.fetch_add(1, Ordering::SeqCst);
        return;
    }
    panic!("{key} was never answered");
}
