use super::*;

#[test]
fn a_line_of_cluster_nodes_is_read() {
    let line = "07c3 127.0.0.1:30004@31004,,tls-port=0 myself,master - 0 0 1 connected 0-5460 7000";
    let master = member(line).unwrap();

    assert_eq!((master.port, master.is_master), (30_004, true));
    assert_eq!(master.slots, [(0, 5_460), (7_000, 7_000)]);

    let replica = member("67ed :30002@31002 slave,fail 07c3 0 1 2 disconnected").unwrap();
    assert_eq!((replica.port, replica.is_master), (30_002, false));
    assert!(replica.slots.is_empty());
    assert!(member("").is_none());
}
