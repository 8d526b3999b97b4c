//! A queue consumer. The queue delivers at least once: messages come several times, and again
//! when handling them failed. Each mail is sent once all the same.
//!
//! `cargo run -p onlyonce-examples --example job_queue`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use onlyonce::{Engine, Job, MemoryStore};
use serde::Serialize;
use tokio::sync::mpsc::{self, UnboundedSender};

/// The queue's own id of a message is the best key: it stays the same over redeliveries.
#[derive(Clone)]
struct Message {
    id: &'static str,
    mail: Mail,
}

#[derive(Clone, Serialize)]
struct Mail {
    to: &'static str,
}

/// A message on loan from the queue, which closes once all are acknowledged.
struct Delivery {
    message: Message,
    queue: UnboundedSender<Delivery>,
}

impl Delivery {
    fn acknowledge(self) {}

    fn redeliver(self) {
        let queue = self.queue.clone();
        // Fails only if nobody receives any more; then the message dies with the queue.
        let _ = queue.send(self);
    }
}

/// How often sending was tried, and how often it happened, for each address.
#[derive(Default)]
struct MailServer {
    log: Mutex<BTreeMap<&'static str, Log>>,
}

#[derive(Clone, Copy, Default)]
struct Log {
    tried: u32,
    sent: u32,
}

impl MailServer {
    /// Sends. But the first mail to Grace breaks off before anything is sent; a panic of the job
    /// would do the same.
    async fn send(&self, mail: Mail) -> Result<u16, &'static str> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let log = log.entry(mail.to).or_default();
        log.tried += 1;
        if mail.to == "grace@example.org" && log.tried == 1 {
            return Err("connection reset");
        }
        log.sent += 1;
        Ok(250)
    }
}

/// Handles one delivery. Only what ran, or had run before, is acknowledged.
async fn consume(send_mail: Job, server: Arc<MailServer>, delivery: Delivery) {
    let Message { id, mail } = delivery.message.clone();
    let ran = send_mail
        .run(id, &mail.clone(), async move || server.send(mail).await)
        .await;
    match ran {
        Ok(_) => delivery.acknowledge(),
        Err(error) => {
            println!("{id} goes back: {error}");
            delivery.redeliver();
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open(MemoryStore::new()).await?;
    let send_mail = engine.job("send-mail");
    let server = Arc::new(MailServer::default());

    let (queue, mut deliveries) = mpsc::unbounded_channel();
    for _ in 0..3 {
        for (id, to) in [
            ("m-1", "ada@example.org"),
            ("m-2", "grace@example.org"),
            ("m-3", "edsger@example.org"),
        ] {
            let message = Message {
                id,
                mail: Mail { to },
            };
            queue.send(Delivery {
                message,
                queue: queue.clone(),
            })?;
        }
    }
    drop(queue);

    let mut delivered = 0;
    while let Some(delivery) = deliveries.recv().await {
        delivered += 1;
        tokio::spawn(consume(send_mail.clone(), Arc::clone(&server), delivery));
    }

    println!("{delivered} deliveries of 3 messages");
    for (to, log) in &*server.log.lock().unwrap_or_else(PoisonError::into_inner) {
        println!("{to}: tried {}, sent {}", log.tried, log.sent);
        assert_eq!(log.sent, 1);
    }
    Ok(())
}
