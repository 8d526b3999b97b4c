//! The Redis store: the conformance suite on every kind of servers, and what only Redis can do
//! to it.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, in its support too"
)]

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Entropy, OsEntropy, Store, async_trait};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::conformance::TestBed;
use onlyonce_testkit::servers::{Shared, shared};

/// The same tests on servers from before 7.2, and on Valkey, whose replication offset moves as it has since 7.2.
macro_rules! on_both_kinds {
    ($($name:ident),*) => {
        mod before_7_2 {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(false).await;
                }
            )*
        }

        mod since_7_2 {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(true).await;
                }
            )*
        }
    };
}

mod agreement;
mod claims;
mod confirming;
mod covering;
mod equal;
mod evicting;
mod failover;
mod flushing;
mod foreign;
mod full;
mod graves;
mod listening;
mod opening;
mod private;
mod quorum;
mod rights;
mod rounds;
mod tls;
mod topology;
mod trouble;

struct RedisBed {
    name: &'static str,
    store: Arc<RedisStore>,
}

impl RedisBed {
    /// A store of its own: nobody else has its prefix.
    async fn open(name: &'static str, url: &str, options: &str) -> Self {
        let url = with(url, &format!("prefix={}{options}", unique(name)));
        let store = RedisStore::open(&url).await;
        Self {
            name,
            store: Arc::new(store.expect("the test servers take us")),
        }
    }
}

#[async_trait]
impl TestBed for RedisBed {
    fn name(&self) -> &str {
        self.name
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    fn expires_by_itself(&self) -> bool {
        true
    }
}

/// `url` with one more option.
fn with(url: &str, option: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{option}")
}

fn unique(name: &str) -> String {
    let mut random = [0; 8];
    OsEntropy::new().fill(&mut random);
    format!("test-{name}-{:016x}", u64::from_le_bytes(random))
}

mod on_one_server {
    use super::*;
    onlyonce_testkit::conformance_suite!(RedisBed::open("one", &shared(Shared::Redis), "").await);
}

mod with_scripted_claims {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        RedisBed::open("scripted", &shared(Shared::Redis), "&claim=script").await
    );
}

mod on_a_cluster {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        RedisBed::open("cluster", &shared(Shared::RedisCluster), "").await
    );
}

mod behind_sentinels {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        RedisBed::open("sentinel", &shared(Shared::RedisSentinel), "").await
    );
}

mod with_confirming_replicas {
    use super::*;
    onlyonce_testkit::conformance_suite!(
        RedisBed::open(
            "confirmed",
            &shared(Shared::RedisSentinel),
            "&wait_replicas=1"
        )
        .await
    );
}
