//! Redis Cluster and Redis under Sentinel.

use std::time::Duration;

use onlyonce_testkit::servers::{
    RedisCluster, RedisClusterOptions, RedisSentinel, RedisSentinelOptions, Server,
};

use super::is_harmless;

/// Longer than a busy machine keeps a process from answering: only who is killed is replaced.
const SILENCE_MAX: Duration = Duration::from_secs(6);

#[test]
fn a_cluster_serves_every_key_and_survives_a_master() {
    let cluster = RedisCluster::start_with(&RedisClusterOptions {
        node_timeout: SILENCE_MAX,
        ..RedisClusterOptions::default()
    })
    .unwrap();
    let ports: Vec<_> = cluster.nodes().iter().map(Server::port).collect();
    let [a, b, c] = ports[..3] else {
        panic!("{ports:?}")
    };
    assert_eq!(
        cluster.url(),
        format!("redis+cluster://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}")
    );
    assert_eq!(ports.len(), 6);
    assert!(cluster.nodes().iter().all(is_harmless));
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        assert_eq!(cluster.cli(&["SET", key, key]).unwrap(), "OK");
        let master = cluster.master_of(key).unwrap();
        assert_eq!(master.info("role").unwrap(), "master");
        assert_eq!(master.cli(&["GET", key]).unwrap(), key);
    }

    let lost = cluster.master_of("a").unwrap();
    lost.cli(&["WAIT", "1", "0"]).unwrap();
    lost.kill().unwrap();
    cluster.wait_until_replaced(lost).unwrap();
    let heir = cluster.master_of("a").unwrap();
    assert_ne!(heir.port(), lost.port());
    assert_eq!(cluster.cli(&["GET", "a"]).unwrap(), "a");

    lost.start_again().unwrap();
    cluster.wait_until_whole().unwrap();
    assert_eq!(lost.info("role").unwrap(), "slave");
    let masters = cluster.masters().unwrap();
    assert_eq!(masters.len(), 3);
    assert!(masters.iter().all(|it| it.port() != lost.port()));
    assert_eq!(cluster.master_of("a").unwrap().port(), heir.port());
}

#[test]
fn sentinels_elect_another_master() {
    let group = RedisSentinel::start_with(&RedisSentinelOptions {
        down_after: SILENCE_MAX,
        ..RedisSentinelOptions::default()
    })
    .unwrap();
    let ports: Vec<_> = group.sentinels().iter().map(Server::port).collect();
    let [a, b, c] = ports[..] else {
        panic!("{ports:?}")
    };
    assert_eq!(
        group.url(),
        format!("redis+sentinel://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}/mymaster")
    );
    assert!(
        group
            .nodes()
            .iter()
            .chain(group.sentinels())
            .all(is_harmless)
    );
    let first = group.master().unwrap();
    assert_eq!(first.port(), group.nodes()[0].port());
    first.cli(&["SET", "key", "kept"]).unwrap();
    assert_eq!(first.cli(&["WAIT", "1", "0"]).unwrap(), "1");

    first.kill().unwrap();
    let second = group.wait_until_replaced(first).unwrap();
    assert_eq!(second.port(), group.nodes()[1].port());
    assert_eq!(second.cli(&["GET", "key"]).unwrap(), "kept");
    assert_eq!(second.cli(&["SET", "key", "changed"]).unwrap(), "OK");

    first.start_again().unwrap();
    group.wait_until_whole().unwrap();
    assert_eq!(first.info("role").unwrap(), "slave");
    assert_eq!(first.cli(&["GET", "key"]).unwrap(), "changed");
}
