//! A user with the rights that docs/stores.md lists and no others can do everything, and without any
//! single one of them something is denied.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use futures_util::future::BoxFuture;
use onlyonce_core::{Store, async_trait};
use onlyonce_redis::{OpenError, RedisQuorum, RedisStore};
use onlyonce_testkit::conformance::{
    TestBed, claims, finishing, lapses, listing, operating, releasing, renewing, upkeep, waiting,
};
use onlyonce_testkit::servers::{
    Redis, RedisCluster, RedisClusterOptions, RedisOptions, RedisSentinel, RedisSentinelOptions,
    Server,
};

use super::claims::{done, replayed};
use super::private::eventually;
use super::quorum::Group;
use super::{unique, with};

/// No server is to take another one for lost because the machine is busy.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Where the rights are listed.
const PAGE: &str = "docs/stores.md";
pub(super) const USER: &str = "least";

/// Servers of a kind, on which the user has the rights that are listed for it.
enum Place {
    One(Redis),
    Valkey(Redis),
    /// Claims by script, in another database than the first.
    Scripted(Redis),
    Cluster(RedisCluster),
    Sentinel(RedisSentinel),
    /// The same, where a replica has to confirm.
    Confirmed(RedisSentinel),
    Quorum(Group),
}

impl Place {
    fn one() -> Self {
        Self::One(Redis::start(RedisOptions::default()).unwrap()).with_rights()
    }

    fn scripted() -> Self {
        Self::Scripted(Redis::start(RedisOptions::default()).unwrap()).with_rights()
    }

    fn valkey() -> Self {
        let options = RedisOptions {
            valkey: true,
            ..RedisOptions::default()
        };
        Self::Valkey(Redis::start(options).unwrap()).with_rights()
    }

    fn cluster() -> Self {
        let options = RedisClusterOptions {
            node_timeout: SILENCE_MAX,
            ..RedisClusterOptions::default()
        };
        Self::Cluster(RedisCluster::start_with(&options).unwrap()).with_rights()
    }

    fn sentinel() -> Self {
        Self::Sentinel(group()).with_rights()
    }

    fn confirmed() -> Self {
        Self::Confirmed(group()).with_rights()
    }

    fn quorum() -> Self {
        Self::Quorum(Group::start(3, true)).with_rights()
    }

    fn with_rights(self) -> Self {
        self.allow(&self.rights());
        if let Self::Sentinel(group) | Self::Confirmed(group) = &self {
            allow(group.sentinels(), &listed("the Sentinels"));
        }
        self
    }

    /// All that are listed for it.
    fn rights(&self) -> Vec<String> {
        let names: &[_] = match self {
            Self::One(_) => &["redis://"],
            Self::Valkey(_) => &["redis://", "Redis 7.2, Valkey"],
            Self::Scripted(_) => &["redis://", "claim=script", "a database but 0"],
            Self::Cluster(_) => &["redis+cluster://"],
            Self::Sentinel(_) => &["redis+sentinel://"],
            Self::Confirmed(_) => &["redis+sentinel://", "wait_replicas"],
            Self::Quorum(_) => &["redis+quorum://"],
        };
        names.iter().flat_map(|name| listed(name)).collect()
    }

    fn servers(&self) -> &[Redis] {
        match self {
            Self::One(server) | Self::Valkey(server) | Self::Scripted(server) => {
                std::slice::from_ref(server)
            }
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sentinel(group) | Self::Confirmed(group) => group.nodes(),
            Self::Quorum(group) => &group.servers,
        }
    }

    fn allow(&self, rights: &[String]) {
        allow(self.servers(), rights);
    }

    /// A store that nobody else uses.
    async fn open(&self) -> Result<Arc<dyn Store>, OpenError> {
        let sentinels = format!("sentinel_user={USER}&sentinel_password=secret");
        let (url, options) = match self {
            Self::One(server) | Self::Valkey(server) => (server.url(), String::new()),
            Self::Scripted(server) => (server.url() + "/1", "claim=script".to_owned()),
            Self::Cluster(cluster) => (cluster.url(), String::new()),
            Self::Sentinel(group) => (group.url(), sentinels),
            Self::Confirmed(group) => (group.url(), sentinels + "&wait_replicas=1"),
            Self::Quorum(group) => (group.url(&[0, 1, 2], ""), String::new()),
        };
        let url = with(
            &as_user(&url),
            &format!("prefix={}&{options}", unique(USER)),
        );
        let url = url.trim_end_matches('&');
        match self {
            Self::One(_)
            | Self::Valkey(_)
            | Self::Scripted(_)
            | Self::Cluster(_)
            | Self::Sentinel(_)
            | Self::Confirmed(_) => Ok(Arc::new(RedisStore::open(url).await?)),
            Self::Quorum(_) => Ok(Arc::clone(RedisQuorum::open(url).await?.store()) as _),
        }
    }

    /// What the user was denied anywhere.
    fn denied(&self) -> Vec<String> {
        let mut denied: Vec<_> = self.servers().iter().flat_map(denied).collect();
        if let Self::Sentinel(group) | Self::Confirmed(group) = self {
            denied.extend(group.sentinels().iter().flat_map(self::denied));
        }
        denied
    }

    fn forget_denied(&self) {
        for server in self.servers() {
            server.cli(&["ACL", "LOG", "RESET"]).unwrap();
        }
    }
}

fn group() -> RedisSentinel {
    let options = RedisSentinelOptions {
        down_after: SILENCE_MAX,
        ..RedisSentinelOptions::default()
    };
    RedisSentinel::start_with(&options).unwrap()
}

/// The rights that the page lists under this name.
pub(super) fn listed(name: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(PAGE);
    let page = std::fs::read_to_string(page).unwrap();
    let rights = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix("  "));
    let rights = rights.unwrap_or_else(|| panic!("{PAGE} lists no rights for {name}"));
    rights.split_whitespace().map(str::to_owned).collect()
}

/// Gives the user these rights, and no others, on keys and channels of its name.
pub(super) fn allow(servers: &[Redis], rights: &[String]) {
    let (keys, channels) = (format!("~*{USER}*"), format!("&*{USER}*"));
    let mut words = vec!["ACL", "SETUSER", USER, "reset", "on", ">secret"];
    words.extend([keys.as_str(), channels.as_str()]);
    words.extend(rights.iter().map(String::as_str));
    for server in servers {
        server.cli(&words).unwrap();
    }
}

/// `url` with the user in it.
pub(super) fn as_user(url: &str) -> String {
    url.replacen("://", &format!("://{USER}:secret@"), 1)
}

/// What the server's log says was denied, and to whom: each entry is a list of names and values.
fn denied(server: &Redis) -> Vec<String> {
    let log = server.cli(&["ACL", "LOG"]).unwrap();
    let mut lines = log.lines();
    let mut denied = Vec::new();
    while let Some(line) = lines.next() {
        if line == "object" {
            denied.extend(lines.next().map(str::to_owned));
        }
    }
    denied
}

/// A store of that user, who must not be denied anything.
struct LeastBed {
    place: &'static Place,
    store: Arc<dyn Store>,
}

impl LeastBed {
    async fn open(place: &'static OnceLock<Place>, start: fn() -> Place) -> Self {
        let place = place.get_or_init(start);
        let store = place.open().await.unwrap();
        Self { place, store }
    }
}

#[async_trait]
impl TestBed for LeastBed {
    fn name(&self) -> &str {
        "least rights"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    fn expires_by_itself(&self) -> bool {
        true
    }
}

impl Drop for LeastBed {
    fn drop(&mut self) {
        let denied = self.place.denied();
        assert!(denied.is_empty() || thread::panicking(), "{denied:?}");
    }
}

mod on_one_server {
    use super::*;
    static PLACE: OnceLock<Place> = OnceLock::new();
    onlyonce_testkit::conformance_suite!(LeastBed::open(&PLACE, Place::one).await);
}

mod on_a_quorum {
    use super::*;
    static PLACE: OnceLock<Place> = OnceLock::new();
    onlyonce_testkit::conformance_suite!(LeastBed::open(&PLACE, Place::quorum).await);
}

/// A part of the suite that uses every right.
const EVERYTHING: [for<'a> fn(&'a dyn TestBed) -> BoxFuture<'a, ()>; 14] = [
    |bed| Box::pin(claims::an_expired_answer_is_granted_anew(bed)),
    |bed| Box::pin(lapses::a_lapsed_claim_is_granted_to_an_equal_one(bed)),
    |bed| {
        Box::pin(finishing::a_stored_answer_is_found_by_every_later_claim(
            bed,
        ))
    },
    |bed| Box::pin(renewing::a_renewed_claim_outlives_its_first_lease(bed)),
    |bed| Box::pin(releasing::a_claim_that_did_not_run_frees_its_slot(bed)),
    |bed| {
        Box::pin(operating::a_forgotten_record_is_gone_whatever_its_state(
            bed,
        ))
    },
    |bed| Box::pin(operating::an_extended_answer_is_kept_that_much_longer(bed)),
    |bed| Box::pin(operating::an_unknown_outcome_can_be_resolved(bed)),
    |bed| Box::pin(upkeep::the_store_answers(bed)),
    |bed| Box::pin(upkeep::the_stats_count_what_is_live(bed)),
    |bed| Box::pin(upkeep::replays_are_added_up(bed)),
    |bed| Box::pin(upkeep::the_first_offer_is_agreed_on(bed)),
    |bed| Box::pin(listing::a_list_is_in_the_order_of_the_slots(bed)),
    |bed| Box::pin(waiting::a_completion_wakes_who_waits(bed)),
];

/// A store of a user whatever may be denied.
struct AnyBed(Arc<dyn Store>);

#[async_trait]
impl TestBed for AnyBed {
    fn name(&self) -> &str {
        "rights"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    fn expires_by_itself(&self) -> bool {
        true
    }
}

async fn assert_nothing_denied(place: Place) {
    for check in EVERYTHING {
        check(&AnyBed(place.open().await.unwrap())).await;
    }

    let denied = place.denied();
    assert!(denied.is_empty(), "{denied:?}");
}

#[tokio::test]
async fn nothing_is_denied_on_valkey() {
    assert_nothing_denied(Place::valkey()).await;
}

#[tokio::test]
async fn nothing_is_denied_with_scripted_claims_in_another_database() {
    assert_nothing_denied(Place::scripted()).await;
}

#[tokio::test]
async fn nothing_is_denied_on_a_cluster() {
    assert_nothing_denied(Place::cluster()).await;
}

#[tokio::test]
async fn nothing_is_denied_behind_sentinels() {
    assert_nothing_denied(Place::sentinel()).await;
    assert_nothing_denied(Place::confirmed()).await;
}

/// Needed while a hash slot moves, which is a test of its own.
const MOVING: &str = "+asking";

/// Takes each of these away in turn, and does everything until it is missed.
async fn assert_needed(place: Place, some: &[String]) {
    let rights = place.rights();
    for right in some.iter().filter(|right| *right != MOVING) {
        let others: Vec<_> = rights.iter().filter(|it| *it != right).cloned().collect();
        place.allow(&others);
        place.forget_denied();
        let is_denied = || place.denied().iter().any(|it| format!("+{it}") == *right);
        for check in EVERYTHING {
            // Whether it goes well without that right does not matter here.
            if let Ok(store) = place.open().await {
                drop(tokio::spawn(async move { check(&AnyBed(store)).await }).await);
            }
            if is_denied() {
                break;
            }
        }
        // The end of a subscription is nobody's to wait for.
        eventually(&format!("{right} is missed"), async || is_denied()).await;
    }
}

#[tokio::test]
async fn every_right_on_one_server_is_needed() {
    assert_needed(Place::one(), &listed("redis://")).await;
}

#[tokio::test]
async fn every_right_on_valkey_is_needed() {
    assert_needed(Place::valkey(), &listed("Redis 7.2, Valkey")).await;
}

#[tokio::test]
async fn every_right_for_scripted_claims_and_other_databases_is_needed() {
    let more = [listed("claim=script"), listed("a database but 0")].concat();
    assert_needed(Place::scripted(), &more).await;
}

#[tokio::test]
async fn every_right_on_a_cluster_is_needed() {
    assert_needed(Place::cluster(), &listed("redis+cluster://")).await;
}

#[tokio::test]
async fn every_right_behind_sentinels_is_needed() {
    assert_needed(Place::sentinel(), &listed("redis+sentinel://")).await;
    assert_needed(Place::confirmed(), &listed("wait_replicas")).await;
}

#[tokio::test]
async fn every_right_on_a_quorum_is_needed() {
    assert_needed(Place::quorum(), &listed("redis+quorum://")).await;
}

/// Who may not publish finishes all the same: those who wait look now and then.
#[tokio::test]
async fn a_user_without_channels_still_finishes_on_a_quorum() {
    let place = Place::quorum();
    for server in place.servers() {
        server
            .cli(&["ACL", "SETUSER", USER, "resetchannels"])
            .unwrap();
    }
    let store = place.open().await.unwrap();

    let claim = done(&*store, "stored").await;

    assert_eq!(replayed(&*store, &claim).await, b"stored");
}
