use onlyonce_core::Finding;
use serde_json::{Value, json};

use super::{About, Verify};
use crate::call::ToolCall;
use crate::decide::{Decision, decide};
use crate::members::raw;
use crate::message::{Id, Reply};
use crate::rules::Rules;

const ONE: &str = r#"{"of":"{operation}"}"#;

fn call(arguments: Value) -> ToolCall {
    let params = json!({"name": "pay", "arguments": arguments, "_meta": {"idempotencyKey": "k"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let decision = decide(&message.to_string(), &Rules::new("bank"), None);
    let Decision::Call { call, .. } = decision else {
        panic!("{decision:?}");
    };
    *call
}

fn asked(template: &str, arguments: Value) -> Option<Value> {
    let verify: Verify = format!("pay=get:{template}").parse().unwrap();
    let call = call(arguments);
    let about = About {
        call: &call,
        key: "{operation}",
        operation: "op-1",
    };
    let question = verify.question(&about, &Id::null())?;
    let question: Value = serde_json::from_str(&question).unwrap();
    assert_eq!(question["params"]["name"], "get");
    Some(question["params"]["arguments"].clone())
}

fn found(options: &str, result: Value) -> &'static str {
    let verify: Verify = format!("pay=get:{ONE}{options}").parse().unwrap();
    match verify.read(Some(&Reply::Result(raw(&result)))) {
        Finding::Happened(_) => "yes",
        Finding::DidNot => "no",
        Finding::CannotTell => "cannot tell",
    }
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

#[test]
fn values_take_their_places_as_data() {
    let template = r#"{"a":"{key}","b":"x-{/n}-{key}","c":"{/o}","d":[1,"{operation}"]}"#;

    let asked = asked(template, json!({"n": 7, "o": {"p": true}})).unwrap();

    let expected =
        json!({"a": "{operation}", "b": "x-7-{operation}", "c": {"p": true}, "d": [1, "op-1"]});
    assert_eq!(asked, expected);
}

#[test]
fn a_question_without_its_argument_is_not_asked() {
    assert_eq!(asked(r#"{"a":"{/n}"}"#, json!({})), None);
    assert_eq!(asked(r#"{"a":"{/n}"}"#, json!({"n": null})), None);
    assert_eq!(asked(r#"{"a":"x{/n}"}"#, json!({"n": [1]})), None);
}

#[test]
fn only_a_clear_yes_and_a_clear_no_count() {
    let structured = |it: Value| json!({"content": [], "structuredContent": it});

    assert_eq!(found("", structured(json!({"id": 1}))), "yes");
    assert_eq!(found("", structured(json!({"result": [1]}))), "yes");
    assert_eq!(found("", text(r#"{"id": 1}"#)), "yes");
    assert_eq!(found("", structured(json!({"result": []}))), "no");
    assert_eq!(found("", structured(json!({"result": null}))), "no");
    assert_eq!(found("", text("[]")), "no");
    for unclear in ["", "nothing found", "false", "true", "0", "{}", "[1"] {
        assert_eq!(found("", text(unclear)), "cannot tell", "{unclear}");
    }
    assert_eq!(found("", json!({"content": []})), "cannot tell");
    assert_eq!(
        found(
            "",
            json!({"isError": true, "content": [{"type": "text", "text": "[]"}]})
        ),
        "cannot tell"
    );
    assert_eq!(
        found("", json!({"resultType": "input_required"})),
        "cannot tell"
    );
    assert_eq!(found("", json!(null)), "cannot tell");
}

#[test]
fn an_object_that_speaks_of_nothing_is_no_yes() {
    for unclear in [
        json!({"payment": null}),
        json!({"items": [], "total": null, "next": ""}),
        json!({"found": false, "id": 7}),
        json!({"success": false, "reason": "no such payment"}),
        json!({"error": "no such payment", "code": 404}),
        json!({"errors": [{"message": "no such payment"}]}),
    ] {
        assert_eq!(
            found("", text(&unclear.to_string())),
            "cannot tell",
            "{unclear}"
        );
    }
    let clear = json!({"id": 7, "error": null, "errors": [], "note": ""});
    assert_eq!(found("", text(&clear.to_string())), "yes");
}

#[test]
fn a_question_by_the_operation_alone_needs_no_call() {
    let by_operation: Verify = format!("pay=get:{ONE}").parse().unwrap();
    let by_more: Verify = r#"pay=get:{"a":"{operation}","b":"{/n}"}"#.parse().unwrap();

    let question = by_operation.question_of("op-1", &Id::null()).unwrap();

    let question: Value = serde_json::from_str(&question).unwrap();
    assert_eq!(
        question["params"],
        json!({"name": "get", "arguments": {"of": "op-1"}})
    );
    assert!(by_operation.is_by_operation() && !by_more.is_by_operation());
    assert_eq!(by_more.question_of("op-1", &Id::null()), None);
}

#[test]
fn a_place_in_the_answer_and_the_words_of_an_error_make_more_of_it_clear() {
    assert_eq!(found(";at=/paid", text(r#"{"paid": true}"#)), "yes");
    assert_eq!(found(";at=/paid", text(r#"{"paid": false}"#)), "no");
    assert_eq!(found(";at=/paid", text(r#"{"paid": ""}"#)), "cannot tell");
    assert_eq!(found(";at=/paid", text("{}")), "cannot tell");
    assert_eq!(found(";at=/0/id", text("[]")), "no");
    assert_eq!(found(";at=/0/id", text(r#"[{"id": "p1"}]"#)), "yes");
    let error = |text: &str| json!({"isError": true, "content": [{"type": "text", "text": text}]});
    assert_eq!(
        found(";absent=no such", error("Error: no such payment")),
        "no"
    );
    assert_eq!(
        found(";absent=no such", error("out of order")),
        "cannot tell"
    );
}

#[test]
fn what_is_no_way_to_find_out_is_told() {
    for bad in [
        "",
        "pay",
        "pay=get",
        "=get:{}",
        "pay=get:[]",
        "pay=get:{}",
        r#"pay=get:{"a":"all","b":[1]}"#,
        r#"pay=get:{"a":"{operation}"};x=1"#,
        r#"pay=get:{"a":"{x}"}"#,
    ] {
        let error = bad.parse::<Verify>().unwrap_err().to_string();
        assert!(error.contains("write it like"), "{bad}: {error}");
    }
}
