//! The store's own time, which all processes that use its file share: within one boot of the machine
//! it goes on by the boot clock, whatever date they see. The moment at which it was last used is
//! kept in the file.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{Clock, SystemClock, Timestamp};
use sqlx::SqliteConnection;

use super::statements::Statements;
use super::trouble::NAME;
use super::writer::begin;
use crate::shared::lock;
use crate::steps::{Columns, from_millis, to_millis};
use onlyonce_storekit::moment::{Boot, Jump, MachineBoot, Moment, StoreTime, since_boot};

pub(super) struct Time {
    time: StoreTime,
    /// As it was last written by this process.
    kept: Mutex<Moment>,
}

impl Time {
    /// Goes on from what the file says, and says there that it does.
    pub(super) async fn resume(
        connection: &mut SqliteConnection,
        statements: &Statements,
    ) -> Result<Self, sqlx::Error> {
        // Most often another process uses it already: then nobody has to wait for the write lock.
        if let Some(kept) = read(connection, statements).await? {
            let (time, _) = go_on(Some(&kept));
            if !kept.is_outdated(&time.moment()) {
                let kept = Mutex::new(kept);
                return Ok(Self { time, kept });
            }
        }
        let mut transaction = begin(connection).await?;
        let kept = read(&mut transaction, statements).await?;
        let (time, jump) = go_on(kept.as_ref());
        let moment = time.moment();
        write(&mut transaction, statements, &moment).await?;
        transaction.commit().await?;
        if let Some(jump) = jump {
            jump.report(NAME);
        }
        let kept = Mutex::new(moment);
        Ok(Self { time, kept })
    }

    /// The store's time, in whole milliseconds since 1970.
    pub(super) fn now(&self) -> Duration {
        self.time.now()
    }

    /// Keeps this moment within a transaction, if what is kept has become outdated.
    pub(super) async fn keep(
        &self,
        connection: &mut SqliteConnection,
        statements: &Statements,
    ) -> Result<(), sqlx::Error> {
        let moment = self.time.moment();
        if !lock(&self.kept).is_outdated(&moment) {
            return Ok(());
        }
        write(connection, statements, &moment).await?;
        // Where the transaction fails, the next one is soon enough.
        *lock(&self.kept) = moment;
        Ok(())
    }
}

/// The store's time, from the moment kept on.
fn go_on(kept: Option<&Moment>) -> (StoreTime, Option<Jump>) {
    let (clock, boot) = (MachineClock::new(), MachineBoot::new());
    StoreTime::resume(Arc::new(clock), Arc::new(boot), kept)
}

async fn read(
    connection: &mut SqliteConnection,
    statements: &Statements,
) -> Result<Option<Moment>, sqlx::Error> {
    let kept = statements.rare("SELECT boot, since, wall, store FROM {table}_clock");
    let Some(row) = sqlx::query(kept).fetch_optional(connection).await? else {
        return Ok(None);
    };
    let since = from_millis(row.int(1)?);
    let boot: Option<String> = sqlx::Row::try_get(&row, 0)?;
    Ok(Some(Moment {
        boot: boot.map(|id| Boot { id, since }),
        wall: from_millis(row.int(2)?),
        store: from_millis(row.int(3)?),
    }))
}

/// Never goes back: another process may be ahead.
async fn write(
    connection: &mut SqliteConnection,
    statements: &Statements,
    moment: &Moment,
) -> Result<(), sqlx::Error> {
    let keep = statements.rare(
        "INSERT INTO {table}_clock (one, boot, since, wall, store) VALUES (1, ?, ?, ?, ?) \
         ON CONFLICT (one) DO UPDATE SET boot = excluded.boot, since = excluded.since, \
         wall = excluded.wall, store = excluded.store WHERE store <= excluded.store",
    );
    let boot = moment.boot.as_ref();
    let keep = sqlx::query(keep)
        .bind(boot.map(|boot| boot.id.clone()))
        .bind(boot.map_or(0, |boot| to_millis(boot.since)))
        .bind(to_millis(moment.wall))
        .bind(to_millis(moment.store));
    keep.execute(connection).await?;
    Ok(())
}

/// A clock that all processes of this machine read alike: the time since it was booted.
struct MachineClock(SystemClock);

impl MachineClock {
    fn new() -> Self {
        Self(SystemClock::new())
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        let now = since_boot().unwrap_or_else(|| self.0.now());
        Duration::from_millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }
}
