//! A durable step that completes its record in its own transaction: cut off anywhere, its effect
//! happens once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_core::engine::job::RunError;
use onlyonce_core::{
    Claim, Claimed, Completed, Engine, Execution, Lease, Operate, Policy, Release, Released,
    Renewed, Response, Slot, Store, StoreError, StoreErrorKind, Token, async_trait,
};
use onlyonce_sql::{SqlOptions, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

const LEASE: Duration = Duration::from_millis(500);
/// Where an attempt is cut off: before its transaction, in it, after it, after the step.
const BOUNDARIES: usize = 4;
const NEVER: usize = usize::MAX;

/// The way of one process to the store: cut off when it dies.
struct Cable {
    store: Arc<SqliteStore>,
    is_cut: AtomicBool,
}

impl Cable {
    fn store(&self) -> Result<&SqliteStore, StoreError> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(StoreError::new("cable", StoreErrorKind::Unavailable));
        }
        Ok(&self.store)
    }
}

#[async_trait]
impl Store for Cable {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.store()?.claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.store()?.renew(lease, lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.store()?.complete(lease, response, keep_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.store()?.release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.store()?.settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.store.operate()
    }
}

struct Shop {
    store: Arc<SqliteStore>,
    pool: SqlitePool,
    /// Where the attempt that runs dies.
    dies_at: AtomicUsize,
    is_dead: AtomicBool,
}

impl Shop {
    async fn at(folder: &tempfile::TempDir, dies_at: usize) -> Arc<Self> {
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("shop.db"))
            .create_if_missing(true);
        let pool = SqlitePoolOptions::new().connect_with(options).await;
        let pool = pool.unwrap();
        let store = SqliteStore::with_pool(pool.clone(), SqlOptions::new()).await;
        sqlx::query("CREATE TABLE charges (id INTEGER PRIMARY KEY)")
            .execute(&pool)
            .await
            .unwrap();
        Arc::new(Self {
            store: Arc::new(store.unwrap()),
            pool,
            dies_at: AtomicUsize::new(dies_at),
            is_dead: AtomicBool::new(false),
        })
    }

    async fn charges(&self) -> i64 {
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM charges");
        count.fetch_one(&self.pool).await.unwrap()
    }

    /// Goes on, or never returns.
    async fn boundary(&self, here: usize) {
        if self.dies_at.load(Ordering::SeqCst) == here {
            self.is_dead.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
    }

    /// The effect and the step's record, in one transaction.
    async fn charge(&self, step: &Execution) -> Result<i64, String> {
        self.boundary(0).await;
        let lease = step.lease().ok_or("it runs without protection")?;
        let mut tx = self.pool.begin().await.map_err(|it| it.to_string())?;
        let locked = self.store.lock_in(&mut tx, lease).await;
        if !matches!(locked, Ok(Renewed::Kept)) {
            return Err(format!("lost: {locked:?}"));
        }
        let id = sqlx::query("INSERT INTO charges DEFAULT VALUES")
            .execute(&mut *tx)
            .await
            .map_err(|it| it.to_string())?
            .last_insert_rowid();
        let value = Arc::new(Response::new(http::StatusCode::OK, id.to_string()));
        let completed = self
            .store
            .complete_in(&mut tx, lease, &value, lease.keep_for);
        if !matches!(completed.await, Ok(Completed::Stored(_))) {
            return Err("not completed".to_owned());
        }
        if self.dies_at.load(Ordering::SeqCst) == 1 {
            // The database rolls back what a process that is gone had begun.
            tx.rollback().await.map_err(|it| it.to_string())?;
            self.boundary(1).await;
        } else {
            tx.commit().await.map_err(|it| it.to_string())?;
        }
        self.boundary(2).await;
        Ok(id)
    }
}

async fn run(engine: &Engine, shop: &Arc<Shop>) -> Result<i64, RunError<String>> {
    let job = engine.job("ride");
    let rules = Policy {
        lease_for: LEASE,
        ..job.rules().clone()
    };
    let shop = Arc::clone(shop);
    let work = async move |execution: Execution| {
        let step = execution.step("charge", &700);
        let id: i64 = step
            .run_with(async |step| shop.charge(&step).await)
            .await
            .map_err(String::from)?;
        shop.boundary(3).await;
        Ok::<_, String>(id)
    };
    let ran = job.policy(rules).run_with("ride-7", &700, work).await;
    ran.map(|ran| ran.value)
}

async fn die(shop: &Arc<Shop>) {
    let cable = Arc::new(Cable {
        store: Arc::clone(&shop.store),
        is_cut: AtomicBool::new(false),
    });
    let engine = Engine::open(Arc::clone(&cable)).await.unwrap();
    let dying = Arc::clone(shop);
    let running = tokio::spawn(async move { run(&engine, &dying).await.map_err(drop) });
    while !shop.is_dead.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cable.is_cut.store(true, Ordering::SeqCst);
    running.abort();
    shop.dies_at.store(NEVER, Ordering::SeqCst);
}

#[tokio::test]
async fn a_step_that_completes_in_its_transaction_happens_once_wherever_it_is_cut_off() {
    for boundary in 0..BOUNDARIES {
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::at(&folder, boundary).await;
        die(&shop).await;
        let committed = shop.charges().await;

        let engine = Engine::open(Arc::clone(&shop.store)).await.unwrap();
        let id = loop {
            match run(&engine, &shop).await {
                Ok(id) => break id,
                Err(RunError::Refused(_)) => tokio::time::sleep(LEASE).await,
                Err(error) => panic!("boundary {boundary}: {error}"),
            }
        };

        assert_eq!(committed, i64::from(boundary >= 2), "boundary {boundary}");
        assert_eq!((shop.charges().await, id), (1, 1), "boundary {boundary}");
    }
}
