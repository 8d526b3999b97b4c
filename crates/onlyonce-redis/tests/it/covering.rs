//! What is acknowledged with `wait_replicas` was replicated, also what was only read (docs/protocol.md#rule-41).
//! Since 7.2 WAIT waits only for what its own connection wrote, so this runs on a server before that
//! and on one after it.

use std::sync::Arc;

use onlyonce_core::{Claimed, Completed, Operate, Store};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server};

use super::claims::{LONG, answer, done, fresh, granted, replayed, rival};
use super::private::{eventually, tell};

/// A master with one replica that follows it.
struct Pair {
    master: Redis,
    replica: Redis,
    /// Acknowledges what the master alone has.
    plain: RedisStore,
    /// Acknowledges what the replica has too.
    waiting: RedisStore,
}

impl Pair {
    async fn start(valkey: bool) -> Self {
        let options = |lines| RedisOptions {
            valkey,
            lines,
            ..RedisOptions::default()
        };
        let master = Redis::start(options(Vec::new())).unwrap();
        let follow = format!("replicaof 127.0.0.1 {}", master.port());
        let replica = Redis::start(options(vec![follow])).unwrap();
        eventually("the replica follows", async || {
            replica.info("master_link_status").unwrap() == "up"
        })
        .await;
        let plain = RedisStore::open(&master.url()).await.unwrap();
        let url = format!("{}?wait_replicas=1&wait_timeout_ms=1000", master.url());
        let waiting = RedisStore::open(&url).await.unwrap();
        // Every connection that it will ever have has written something before.
        for _ in 0..16 {
            eventually("the replica confirms", async || {
                waiting.claim(&fresh()).await.is_ok()
            })
            .await;
        }
        Self {
            master,
            replica,
            plain,
            waiting,
        }
    }

    /// From here on the replica hears of nothing, though its connection stays.
    async fn cut_off(&self) {
        let said: i64 = tell(&self.master, &["WAIT", "1", "5000"]).await;
        assert_eq!(said, 1);
        self.replica.pause().unwrap();
    }
}

async fn a_replay_is_only_given_once_replicas_have_it(valkey: bool) {
    let pair = Pair::start(valkey).await;
    pair.cut_off().await;
    let only_here = done(&pair.plain, "on the master alone").await;

    for _ in 0..3 {
        let replay = pair.waiting.claim(&rival(&only_here)).await;
        let error = replay.expect_err("the replica does not have it");
        assert!(
            error
                .source
                .unwrap()
                .to_string()
                .contains("replicas confirmed")
        );
    }

    pair.replica.resume().unwrap();
    eventually("the replica follows again", async || {
        pair.waiting.claim(&rival(&only_here)).await.is_ok()
    })
    .await;
    assert_eq!(
        replayed(&pair.waiting, &only_here).await,
        b"on the master alone"
    );
}

async fn a_completion_that_finds_itself_waits_for_replicas(valkey: bool) {
    let pair = Pair::start(valkey).await;
    let claim = fresh();
    let lease = granted(&pair.plain, &claim).await;
    pair.cut_off().await;
    let response = answer("on the master alone");
    let stored = pair.plain.complete(&lease, &response, LONG).await;
    assert!(matches!(stored, Ok(Completed::Stored(_))));

    for _ in 0..3 {
        let found = pair.waiting.complete(&lease, &response, LONG).await;
        assert!(found.is_err(), "the replica does not have it: {found:?}");
    }

    pair.replica.resume().unwrap();
}

async fn what_is_agreed_on_is_only_told_once_replicas_have_it(valkey: bool) {
    let pair = Pair::start(valkey).await;
    pair.cut_off().await;
    pair.plain.agree("name", b"value").await.unwrap();

    for _ in 0..3 {
        assert!(pair.waiting.agree("name", b"other").await.is_err());
        assert!(pair.waiting.agreed("name").await.is_err());
    }

    pair.replica.resume().unwrap();
    eventually(
        "the replica follows again",
        async || matches!(pair.waiting.agreed("name").await, Ok(Some(kept)) if kept == b"value"),
    )
    .await;
}

/// A new key is refused by a server that is out of memory, and what is there is still replayed.
async fn out_of_memory_only_new_keys_are_refused(valkey: bool) {
    let pair = Pair::start(valkey).await;
    let old = done(&pair.waiting, "stored").await;
    let held = granted(&pair.waiting, &fresh()).await;
    let _: () = tell(&pair.master, &["CONFIG", "SET", "maxmemory", "1"]).await;

    let refused = pair.waiting.claim(&fresh()).await.unwrap_err();

    assert_eq!(refused.kind, onlyonce_core::StoreErrorKind::Full);
    assert_eq!(replayed(&pair.waiting, &old).await, b"stored");
    let completed = pair.waiting.complete(&held, &answer("late"), LONG).await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
}

/// Claims of one key from all sides: one is granted, also where each is decided by a script.
async fn one_of_many_claims_is_granted(valkey: bool) {
    let pair = Arc::new(Pair::start(valkey).await);
    let claim = fresh();

    let claims = (0..32).map(|_| {
        let (pair, claim) = (Arc::clone(&pair), rival(&claim));
        tokio::spawn(async move { pair.waiting.claim(&claim).await.unwrap() })
    });
    let claims: Vec<_> = claims.collect();
    let mut granted = 0;
    for claim in claims {
        granted += usize::from(matches!(claim.await.unwrap(), Claimed::Granted { .. }));
    }

    assert_eq!(granted, 1);
}

on_both_kinds!(
    a_replay_is_only_given_once_replicas_have_it,
    a_completion_that_finds_itself_waits_for_replicas,
    what_is_agreed_on_is_only_told_once_replicas_have_it,
    out_of_memory_only_new_keys_are_refused,
    one_of_many_claims_is_granted
);
