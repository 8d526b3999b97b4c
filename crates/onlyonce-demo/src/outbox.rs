//! What others are told: written with the change it tells of, in one commit, and delivered after
//! it, each under a key of its own that stays the same however often the delivery is tried.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, HOST};
use serde_json::Value;
use tokio::sync::Notify;

use crate::db::{Db, Work};
use crate::ids::{Ids, column, now};

/// What this service is called by itself: a name that nobody can point anywhere (RFC 6761).
pub(crate) const HOME: &str = "onlyonce-demo.invalid";
const BATCH: usize = 32;
const SEND_MAX: Duration = Duration::from_secs(10);
const PAUSE_MIN_MILLIS: i64 = 500;
const PAUSE_MAX_MILLIS: i64 = 5 * 60 * 1000;
/// How often to look without being woken: another process may have written.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Where deliveries are put.
#[derive(Clone)]
pub(crate) struct Outbox {
    ids: Ids,
    due: Arc<Notify>,
}

impl Outbox {
    pub(crate) fn new(ids: Ids) -> Self {
        Self {
            ids,
            due: Arc::default(),
        }
    }

    /// Puts a delivery; it is due once the work is committed.
    pub(crate) async fn put(
        &self,
        work: &mut Work,
        target: &str,
        body: &Value,
        at: i64,
    ) -> Result<(), sqlx::Error> {
        const INSERT: &str = "INSERT INTO outbox (id, target, body, attempts, due_at) \
            VALUES ($1, $2, $3, 0, $4)";
        let (id, body) = (self.ids.make("whk_"), body.to_string());
        let args = [(&id).into(), target.into(), (&body).into(), at.into()];
        work.run(INSERT, &args).await.map(drop)
    }

    /// Says that something may be due.
    pub(crate) fn wake(&self) {
        self.due.notify_one();
    }

    /// Delivers for as long as it is polled. `home` is where paths without a host lead.
    pub(crate) async fn deliver(self, db: Db, home: String) {
        // What a redirect leads to is not the receiver's own word.
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let client = client
            .build()
            .expect("settings that are all ours make a client");
        let postman = Postman { db, home, client };
        loop {
            match postman.round().await {
                Ok(BATCH) => continue,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(target: "onlyonce_demo", %error, "the outbox cannot be read");
                }
            }
            let _ = tokio::time::timeout(LOOK_EVERY, self.due.notified()).await;
        }
    }
}

struct Postman {
    db: Db,
    home: String,
    client: reqwest::Client,
}

#[derive(sqlx::FromRow)]
struct Delivery {
    id: String,
    target: String,
    body: String,
    attempts: i64,
}

impl Postman {
    /// Tries everything that is due; says how much that was.
    async fn round(&self) -> Result<usize, sqlx::Error> {
        const DUE: &str = "SELECT id, target, body, attempts FROM outbox \
            WHERE delivered_at IS NULL AND due_at <= $1 ORDER BY due_at LIMIT 32";
        let due: Vec<Delivery> = self.db.all(DUE, &[column(now()).into()]).await?;
        for delivery in &due {
            if self.take(delivery).await? && self.send(delivery).await {
                self.delivered(delivery).await?;
            }
        }
        Ok(due.len())
    }

    /// Counts the attempt, and puts the next one off; false if another process did so first.
    async fn take(&self, delivery: &Delivery) -> Result<bool, sqlx::Error> {
        const TAKE: &str = "UPDATE outbox SET attempts = attempts + 1, due_at = $3 \
            WHERE id = $1 AND attempts = $2";
        let doublings = u32::try_from(delivery.attempts).unwrap_or(0).min(20);
        let pause = (PAUSE_MIN_MILLIS << doublings).min(PAUSE_MAX_MILLIS);
        let again_at = column(now()) + pause;
        let args = [
            (&delivery.id).into(),
            delivery.attempts.into(),
            again_at.into(),
        ];
        Ok(self.db.run(TAKE, &args).await? == 1)
    }

    async fn send(&self, delivery: &Delivery) -> bool {
        let request = match delivery.target.strip_prefix('/') {
            // Records are kept apart by host, and the port of this one changes with every start.
            Some(path) => {
                let url = format!("{}/{path}", self.home);
                self.client.post(url).header(HOST, HOME)
            }
            None => self.client.post(&delivery.target),
        };
        let sent = request
            .timeout(SEND_MAX)
            .header("idempotency-key", &delivery.id)
            .header(CONTENT_TYPE, "application/json")
            .body(delivery.body.clone())
            .send();
        match sent.await {
            Ok(answer) if answer.status().is_success() => true,
            Ok(answer) => {
                let (id, status) = (&delivery.id, answer.status().as_u16());
                tracing::warn!(target: "onlyonce_demo", id, status, "a delivery was refused");
                false
            }
            Err(error) => {
                let (id, error) = (&delivery.id, error.without_url());
                tracing::warn!(target: "onlyonce_demo", id, %error, "a delivery failed");
                false
            }
        }
    }

    async fn delivered(&self, delivery: &Delivery) -> Result<(), sqlx::Error> {
        const DONE: &str = "UPDATE outbox SET delivered_at = $2 WHERE id = $1";
        let args = [(&delivery.id).into(), column(now()).into()];
        self.db.run(DONE, &args).await.map(drop)
    }
}
