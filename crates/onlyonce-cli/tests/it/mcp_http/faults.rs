//! A network between the SDK's client and the gateway that loses, cuts, delays and doubles calls of tools.

use std::collections::BTreeSet;

use serde_json::Value;

use super::shop::Shop;
use super::{OVER_HTTP, Way};
use proxy::{FAULTS, FaultyProxy, head_len};

#[path = "../../../../../node/tests/node/faults/proxy.rs"]
mod proxy;

const ORDERS: usize = 12;

/// The key of a call, in its arguments.
fn key_of(request: &[u8]) -> Option<String> {
    let message: Value = serde_json::from_slice(&request[head_len(request)..]).ok()?;
    let key = message["params"]["arguments"]["idempotencyKey"].as_str()?;
    Some(key.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tool_call_has_one_effect_and_its_answer_over_a_faulty_network() {
    for way in OVER_HTTP {
        let shop = Shop::open(&[]).await;
        let mut front = shop.front(way, "").await;
        let proxy = FaultyProxy::start(front.address(), key_of).await;
        front.is_reached_at(proxy.address);

        let heard = front
            .client("faulty", &[("ORDERS", &ORDERS.to_string())])
            .await;

        let effects = shop.effects();
        let items: BTreeSet<_> = effects.iter().collect();
        assert_eq!(
            (effects.len(), items.len()),
            (ORDERS, ORDERS),
            "{effects:?}"
        );
        for (number, item) in (1..).zip(&effects) {
            let text = heard[item]["text"].as_str().unwrap();
            let expected = format!("order {number} of {item}");
            match way {
                // Each session has a server of its own, and two of them may count the ledger at once.
                Way::Listen => assert!(text.ends_with(&format!(" of {item}")), "{heard}"),
                Way::Gateway | Way::Proxy => assert_eq!(text, expected, "{heard}"),
            }
        }
        let happened = proxy.happened();
        for fault in FAULTS {
            assert!(happened.contains_key(&fault), "{fault:?}: {happened:?}");
        }
    }
}
