//! Effects as rows of a table: each is committed together with the answer to it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tokio::sync::Notify;

use super::Order;

/// How long a late attempt waits for the one that overtakes it. If none does, it was in time.
const LATE_MAX: Duration = Duration::from_secs(4);

pub(super) struct Database {
    url: String,
    is_late: bool,
    /// Operations that a later attempt has committed.
    overtaken: RefCell<HashSet<String>>,
    overtaking: Notify,
}

/// One attempt.
pub(super) struct Asked {
    pub(super) order: Order,
    pub(super) lease: String,
    pub(super) operation: String,
    pub(super) is_first: bool,
}

impl Database {
    pub(super) fn new(url: &str, is_late: bool) -> Self {
        Self {
            url: url.to_owned(),
            is_late,
            overtaken: RefCell::default(),
            overtaking: Notify::new(),
        }
    }

    /// The effect and the answer to it, or neither. Returns the effect's number.
    pub(super) async fn commit(&self, asked: &Asked) -> Result<u64, sqlx::Error> {
        let mut connection = PgConnection::connect(&self.url).await?;
        let mut transaction = connection.begin().await?;
        let insert = "INSERT INTO ledger (reference, what) VALUES ($1, $2) RETURNING id";
        let number: i64 = sqlx::query_scalar(insert)
            .bind(&asked.order.reference)
            .bind(&asked.order.what)
            .fetch_one(&mut *transaction)
            .await?;
        if self.is_late && asked.is_first {
            self.dawdle(&asked.operation).await;
        }
        let body = serde_json::json!({"charge": number}).to_string();
        let headers = r#"{"content-type": "application/json"}"#;
        sqlx::query("SELECT onlyonce_complete($1, 201, $2::jsonb, $3)")
            .bind(&asked.lease)
            .bind(headers)
            .bind(body.as_bytes())
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        if !asked.is_first {
            self.overtaken.borrow_mut().insert(asked.operation.clone());
            self.overtaking.notify_waiters();
        }
        // It is committed, whatever becomes of the connection.
        drop(connection.close().await);
        Ok(u64::try_from(number).unwrap_or_default())
    }

    /// Waits until a later attempt has committed.
    async fn dawdle(&self, operation: &str) {
        let overtaken = async {
            loop {
                let next = self.overtaking.notified();
                if self.overtaken.borrow().contains(operation) {
                    return;
                }
                next.await;
            }
        };
        // If none comes, this attempt is the one that counts.
        drop(tokio::time::timeout(LATE_MAX, overtaken).await);
    }
}
