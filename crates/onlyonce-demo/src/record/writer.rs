//! From notes to rows: an event of its submission for each replay, and an audit event for all.

use std::time::Duration;

use onlyonce::core::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Happened, Note, Told};
use crate::actor;
use crate::db::{Db, Work};
use crate::ids::{Ids, column, now, shown};
use crate::intake::events::{New, What};

const BATCH_MAX: usize = 256;
const RETRY: Duration = Duration::from_secs(1);
/// How often expired keys, and events past their time, are looked for.
const EXPIRED_EVERY: Duration = Duration::from_secs(60);

/// Writes batches of notes.
pub(super) struct Writer {
    db: Db,
    ids: Ids,
    /// How long audit events are kept.
    keep: Duration,
}

impl Writer {
    pub(super) fn new(db: Db, ids: Ids, keep: Duration) -> Self {
        Self { db, ids, keep }
    }

    /// Writes until the last recorder is gone.
    pub(super) async fn run(self, mut noted: mpsc::Receiver<Note>) {
        let mut batch = Vec::new();
        loop {
            let next = noted.recv_many(&mut batch, BATCH_MAX);
            let waited = tokio::time::timeout(EXPIRED_EVERY, next).await;
            let is_over = waited == Ok(0);
            let (mut happened, mut flushed) = (Vec::new(), Vec::new());
            for note in batch.drain(..) {
                match note {
                    Note::Happened(it) => happened.push(it),
                    Note::Flush(done) => flushed.push(done),
                }
            }
            while let Err(error) = self.write(&happened).await {
                tracing::warn!(target: "onlyonce_demo", %error, "events wait to be written");
                tokio::time::sleep(RETRY).await;
            }
            for done in flushed {
                let _ = done.send(());
            }
            if is_over {
                return;
            }
        }
    }

    async fn write(&self, happened: &[Box<Happened>]) -> Result<(), sqlx::Error> {
        let mut work = self.db.plain_work().await?;
        for it in happened {
            match it.what {
                Told::Replayed { number, .. } => {
                    self.audit(&mut work, it).await?;
                    self.replayed(&mut work, it, number).await?;
                }
                Told::Created { .. }
                | Told::Conflict { .. }
                | Told::Contention { .. }
                | Told::Deleted { .. } => self.audit(&mut work, it).await?,
                Told::Extended { by } => self.extended(&mut work, &it.slot, by).await?,
            }
        }
        self.expired(&mut work).await?;
        self.drop_old(&mut work).await?;
        work.commit().await
    }

    /// Drops events that were kept long enough, some at a time.
    async fn drop_old(&self, work: &mut Work) -> Result<(), sqlx::Error> {
        const DROP: &str = "DELETE FROM audit_events WHERE id IN \
            (SELECT id FROM audit_events WHERE at < $1 ORDER BY at LIMIT 1000)";
        let keep = i64::try_from(self.keep.as_millis()).unwrap_or(i64::MAX);
        let before = column(now()).saturating_sub(keep);
        work.run(DROP, &[before.into()]).await.map(drop)
    }

    /// The replay of a change of a submission is an event of that submission, numbered by the
    /// events that are there.
    async fn replayed(
        &self,
        work: &mut Work,
        it: &Happened,
        number: Option<u64>,
    ) -> Result<(), sqlx::Error> {
        // After a key expired its slot may be used anew: the last original counts.
        const ORIGINAL: &str = "SELECT id, submission FROM submission_events \
            WHERE slot = $1 AND original IS NULL ORDER BY at DESC, seq DESC LIMIT 1";
        const COUNT: &str =
            "UPDATE submissions SET events = events + 1 WHERE id = $1 RETURNING events";
        const REPLAYS: &str = "SELECT COUNT(*) FROM submission_events WHERE original = $1";
        let found: Vec<(String, String)> = work.all(ORIGINAL, &[(&it.slot).into()]).await?;
        let Some((original, submission)) = found.first() else {
            return Ok(());
        };
        let seqs: Vec<(i64,)> = work.all(COUNT, &[submission.into()]).await?;
        let replays: Vec<(i64,)> = work.all(REPLAYS, &[original.into()]).await?;
        let (Some((seq,)), Some((replays,))) = (seqs.first(), replays.first()) else {
            return Ok(());
        };
        let event = New {
            id: &self.ids.make("evt_"),
            submission,
            seq: *seq,
            what: What::Replayed,
            at: column(it.at),
            actor: it.actor.as_deref(),
            key: Some((&it.slot, &it.label)),
            replay: Some((original, number.map_or(replays + 1, whole))),
        };
        event.write(work).await
    }

    async fn audit(&self, work: &mut Work, it: &Happened) -> Result<(), sqlx::Error> {
        let (name, mut metadata, expires_at) = match &it.what {
            Told::Created {
                expires_at,
                keep_for,
            } => {
                let metadata = json!({
                    "expiresAt": expires_at.to_rfc3339(),
                    "ttl_ms": millis(*keep_for),
                });
                ("idempotency.key.created", metadata, column(*expires_at))
            }
            Told::Replayed {
                original_at,
                number,
            } => {
                let since = it.at.as_millis().saturating_sub(original_at.as_millis());
                let metadata = json!({
                    "replayCount": number,
                    "originalTimestamp": original_at.to_rfc3339(),
                    "timeSinceOriginal_ms": since,
                });
                ("idempotency.replay", metadata, 0)
            }
            Told::Conflict { original, this } => {
                let mut metadata = self.conflict(work, &it.slot).await?;
                metadata["originalRequestHash"] = json!(original);
                metadata["conflictingRequestHash"] = json!(this);
                ("idempotency.conflict", metadata, 0)
            }
            Told::Contention {
                holder,
                depth,
                waited,
            } => {
                let metadata = json!({
                    "lockHolder": holder,
                    "queueDepth": depth,
                    "waitTime_ms": millis(*waited),
                });
                ("idempotency.lock.contention", metadata, 0)
            }
            Told::Deleted {
                keep_for,
                lifetime,
                replays,
            } => {
                self.told(work, &it.slot).await?;
                let metadata = json!({
                    "ttl_ms": millis(*keep_for),
                    "lifetime_ms": millis(*lifetime),
                    "replayCount": replays,
                    "reason": "explicit_delete",
                });
                ("idempotency.key.expired", metadata, 0)
            }
            // No event of its own: the end of the key comes later.
            Told::Extended { .. } => return Ok(()),
        };
        metadata["idempotencyKey"] = json!(it.label);
        metadata["intakeId"] = json!(it.intake);
        metadata["submissionId"] = json!(it.resource);
        let row = Row {
            name,
            at: it.at,
            actor: it.actor.as_deref(),
            slot: &it.slot,
            operation: &it.operation,
            metadata,
            expires_at,
        };
        self.insert(work, &row).await
    }

    /// The end of what is in the slot was told: it does not come later once more.
    async fn told(&self, work: &mut Work, slot: &str) -> Result<(), sqlx::Error> {
        const TOLD: &str =
            "UPDATE audit_events SET expires_at = NULL WHERE slot = $1 AND expires_at IS NOT NULL";
        work.run(TOLD, &[slot.into()]).await.map(drop)
    }

    /// The key ends that much later than was told when it was created.
    async fn extended(&self, work: &mut Work, slot: &str, by: Duration) -> Result<(), sqlx::Error> {
        const LIVE: &str = "SELECT id, metadata FROM audit_events \
            WHERE slot = $1 AND expires_at IS NOT NULL";
        const LATER: &str = "UPDATE audit_events SET expires_at = expires_at + $2, metadata = $3 \
            WHERE id = $1";
        let by = whole(millis(by));
        let live: Vec<(String, String)> = work.all(LIVE, &[slot.into()]).await?;
        for (id, metadata) in &live {
            let mut metadata: Value = serde_json::from_str(metadata).unwrap_or_default();
            let before = metadata["extended_ms"].as_i64().unwrap_or(0);
            metadata["extended_ms"] = json!(before.saturating_add(by));
            let metadata = metadata.to_string();
            let args = [id.into(), by.into(), (&metadata).into()];
            work.run(LATER, &args).await?;
        }
        Ok(())
    }

    /// Whose request the key had been used for, as far as that was written down.
    async fn conflict(&self, work: &mut Work, slot: &str) -> Result<Value, sqlx::Error> {
        let mut metadata = json!({"conflictType": "payload_mismatch"});
        if let Some((at, actor)) = self.last_created(work, slot).await? {
            metadata["originalTimestamp"] = json!(shown(at));
            metadata["originalActor"] = actor::view(actor.as_deref());
        }
        Ok(metadata)
    }

    /// When the key was last created, and by whom.
    async fn last_created(
        &self,
        work: &mut Work,
        slot: &str,
    ) -> Result<Option<(i64, Option<String>)>, sqlx::Error> {
        const CREATED: &str = "SELECT at, actor FROM audit_events \
            WHERE slot = $1 AND type = 'idempotency.key.created' ORDER BY at DESC LIMIT 1";
        let found = work.all(CREATED, &[slot.into()]).await?;
        Ok(found.into_iter().next())
    }

    /// Tells of keys whose time is over; each is told once.
    async fn expired(&self, work: &mut Work) -> Result<(), sqlx::Error> {
        const EXPIRED: &str = "UPDATE audit_events SET expires_at = NULL \
            WHERE id IN (SELECT id FROM audit_events WHERE expires_at <= $1 \
                         ORDER BY expires_at LIMIT 256) \
            RETURNING slot, operation, at, metadata";
        let at = now();
        let over: Vec<(String, String, i64, String)> =
            work.all(EXPIRED, &[column(at).into()]).await?;
        for (slot, operation, created_at, metadata) in over {
            let created: Value = serde_json::from_str(&metadata).unwrap_or_default();
            let ttl_ms = created["ttl_ms"].as_i64().unwrap_or(i64::MAX);
            let extended_ms = created["extended_ms"].as_i64().unwrap_or(0);
            let ttl_ms = ttl_ms.saturating_add(extended_ms);
            let ended_at = created_at.saturating_add(ttl_ms);
            let row = Row {
                name: "idempotency.key.expired",
                at,
                actor: None,
                slot: &slot,
                operation: &operation,
                metadata: json!({
                    "idempotencyKey": created["idempotencyKey"],
                    "intakeId": created["intakeId"],
                    "submissionId": created["submissionId"],
                    "ttl_ms": ttl_ms,
                    "lifetime_ms": column(at) - created_at,
                    "replayCount": self.replays(work, &slot, created_at, ended_at).await?,
                    "reason": "ttl_elapsed",
                }),
                expires_at: 0,
            };
            self.insert(work, &row).await?;
        }
        Ok(())
    }

    /// How often a key was replayed in one of its lives: its slot may have been used before, and after.
    /// The last number that was told, which replays of other processes count for too; without one, how
    /// many were written down.
    async fn replays(
        &self,
        work: &mut Work,
        slot: &str,
        since: i64,
        until: i64,
    ) -> Result<i64, sqlx::Error> {
        const REPLAYS: &str = "SELECT metadata FROM audit_events \
            WHERE slot = $1 AND type = 'idempotency.replay' AND at >= $2 AND at <= $3";
        let args = [slot.into(), since.into(), until.into()];
        let replays: Vec<(String,)> = work.all(REPLAYS, &args).await?;
        let number = |(metadata,): &(String,)| {
            let metadata: Value = serde_json::from_str(metadata).ok()?;
            metadata["replayCount"].as_i64()
        };
        let counted = whole(replays.len() as u64);
        Ok(replays.iter().filter_map(number).fold(counted, i64::max))
    }

    async fn insert(&self, work: &mut Work, row: &Row<'_>) -> Result<(), sqlx::Error> {
        const INSERT: &str = "INSERT INTO audit_events \
            (id, type, at, actor, slot, operation, metadata, expires_at) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, NULLIF($8, 0))";
        let (id, metadata) = (self.ids.make("evt_"), row.metadata.to_string());
        let args = [
            (&id).into(),
            row.name.into(),
            column(row.at).into(),
            row.actor.into(),
            row.slot.into(),
            row.operation.into(),
            (&metadata).into(),
            row.expires_at.into(),
        ];
        work.run(INSERT, &args).await.map(drop)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

struct Row<'a> {
    name: &'a str,
    at: Timestamp,
    actor: Option<&'a str>,
    slot: &'a str,
    operation: &'a str,
    metadata: Value,
    /// 0 for never.
    expires_at: i64,
}
