use serde_json::json;

use super::{ObservedReport, ObservedView, grouped};

fn view(routes: serde_json::Value) -> ObservedView {
    let view = json!({
        "since": "2026-01-01T00:00:00.000Z", "keys": 2, "keys_max": 100_000, "keys_forgotten": 0,
        "routes": routes,
    });
    serde_json::from_value(view).unwrap()
}

fn seen(name: &str, count: u64, is_refused: bool) -> serde_json::Value {
    json!({
        "seen": name, "refused": is_refused, "count": count,
        "first_at": "2026-01-01T00:00:01.000Z", "last_at": "2026-01-01T00:00:02.000Z",
        "examples": [{"at": "2026-01-01T00:00:02.000Z", "key": "7c9e6679…0a1b2c3d", "detail": null}],
    })
}

#[test]
fn a_report_says_in_sentences_what_enforcing_would_have_done() {
    let view = view(json!([{
        "route": "POST /orders", "observed": true, "since": "2026-01-01T00:00:00.000Z",
        "requests": 10_213, "keyed": 10_210,
        "verdicts": [seen("first", 9_795, false), seen("replay", 412, false),
            seen("mismatch", 3, true), seen("unkeyed", 3, false)],
        "findings": [seen("ran-again", 412, false)],
    }]));

    let text = ObservedReport::of(&view).text();

    assert!(
        text.contains("412 of 10,210 keyed requests were repeats."),
        "{text}"
    );
    assert!(
        text.contains("  412 would have got the stored answer."),
        "{text}"
    );
    assert!(
        text.contains("  3 would have been refused as conflicts"),
        "{text}"
    );
    assert!(
        text.contains("  412 ran a second time under the same key"),
        "{text}"
    );
    assert!(text.contains("key 7c9e6679…0a1b2c3d"), "{text}");
    assert!(text.contains("since 2026-01-01 00:00:00 UTC."), "{text}");
    assert!(
        text.contains("      2026-01-01 00:00:02 UTC, key"),
        "{text}"
    );
    let last = text.lines().last().unwrap();
    assert!(
        last.contains("mode = \"enforce\" in the [[route]] with match = \"POST /orders\""),
        "{last}"
    );
}

#[test]
fn a_page_of_markdown_has_a_heading_for_each_route() {
    let route = |name: &str| {
        json!({"route": name, "observed": true, "since": "2026-01-01T00:00:00.000Z",
            "requests": 0, "keyed": 0, "verdicts": [], "findings": []})
    };
    let view = view(json!([route("*"), route("POST /orders")]));

    let page = ObservedReport::of(&view).markdown();

    assert!(
        page.contains("\n## Requests that no route matches (observed"),
        "{page}"
    );
    assert!(page.contains("\n## POST /orders (observed"), "{page}");
    assert!(page.contains("- No request yet."), "{page}");
}

#[test]
fn without_an_observed_route_the_report_says_how_to_observe_one() {
    let text = ObservedReport::of(&view(json!([]))).text();

    assert!(text.contains("mode = \"observe\""), "{text}");
}

#[test]
fn numbers_are_grouped_by_three_digits() {
    let shown = [0, 12, 999, 1_000, 10_210, 1_234_567].map(grouped);

    assert_eq!(shown, ["0", "12", "999", "1,000", "10,210", "1,234,567"]);
}
