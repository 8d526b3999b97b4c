//! Many processes on five servers of which one at a time crashes, hangs or loses its disk: what the
//! processes wrote down breaks no rule.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Store;
use onlyonce_redis::RedisQuorum;
use onlyonce_testkit::history::{Load, Program, Run, faults, is_worker, worker_main};
use onlyonce_testkit::servers::Server;

use super::Group;

/// What the run below starts as its workers; nothing otherwise.
#[test]
fn a_worker() {
    if is_worker() {
        worker_main(async |url: &str| {
            let opened = RedisQuorum::open(url).await;
            opened.map(|quorum| Arc::clone(quorum.store()) as Arc<dyn Store>)
        })
        .unwrap();
    }
}

/// The server comes back empty, and is admitted by an operator.
fn disk_loss(group: &Arc<Group>, url: &str, at: usize) -> Fault {
    let (group, url) = (Arc::clone(group), url.to_owned());
    Arc::new(move |_| {
        let (group, url) = (Arc::clone(&group), url.clone());
        Box::pin(async move {
            let (wiped, seat) = (Arc::clone(&group), group.seat(at));
            tokio::task::spawn_blocking(move || wiped.lose_disk(at))
                .await
                .unwrap();
            // Another server may just be away.
            let registers = loop {
                if let Ok(quorum) = RedisQuorum::open(&url).await
                    && let Ok(registers) = quorum.admit(&seat).await
                {
                    break registers;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
            format!("{seat} lost its data and was admitted after {registers} registers")
        })
    })
}

type Fault = onlyonce_testkit::history::StoreFault;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_servers_that_crash_hang_and_lose_their_disks_break_no_rule() {
    let group = Arc::new(Group::start(5, true));
    let url = group.url(&[0, 1, 2, 3, 4], "");
    RedisQuorum::open(&url).await.unwrap();
    let worker = Program::this_test("quorum::history::a_worker").unwrap();
    let mut run = Run::new(&*url, worker);
    run.load = Load {
        lasts: Duration::from_secs(8),
        calls: 1500,
        keys: 240,
        faults: 16,
        ..Load::usual()
    };
    run.offsets = vec![String::new(), "+10m".to_owned(), "-10m".to_owned()];
    let mut kinds: Vec<Fault> = Vec::new();
    for at in 0..5 {
        let server = Arc::new(Member(Arc::clone(&group), at));
        kinds.push(faults::crashes(server, 50..=800));
        kinds.push(disk_loss(&group, &url, at));
    }
    run.store_fault = Some(faults::any_of(kinds));

    let report = run.execute().await.unwrap();

    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert!(report.heard["replayed"] > 0, "{report}");
    assert!(report.faults["store"] > 0, "{report}");
}

/// One server of a group.
struct Member(Arc<Group>, usize);

impl Server for Member {
    fn daemon(&self) -> &onlyonce_testkit::servers::Daemon {
        self.0.servers[self.1].daemon()
    }

    fn url(&self) -> String {
        self.0.servers[self.1].url()
    }
}
