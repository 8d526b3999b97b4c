//! D0 §7.2: the intake's operations as MCP tools, with the official SDK as the client, over streamable
//! HTTP and over a plain stream, as stdin and stdout are.

use std::collections::BTreeSet;

use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};

use crate::support::{Bed, intakes};

const KEY: &str = "idem_550e8400-e29b-41d4-a716-446655440001";

type Client = RunningService<RoleClient, ()>;

async fn over_http(bed: &Bed) -> Client {
    let transport = StreamableHttpClientTransport::from_uri(format!("{}/mcp", bed.url));
    ().serve(transport).await.unwrap()
}

async fn over_stream(bed: &Bed) -> Client {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let tools = bed.demo.tools().clone();
    let (reader, writer) = tokio::io::split(server);
    tokio::spawn(tools.serve_on(reader, writer));
    ().serve(client).await.unwrap()
}

async fn call(client: &Client, tool: &str, arguments: Value) -> CallToolResult {
    let arguments = arguments.as_object().unwrap().clone();
    let call = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    client.call_tool(call).await.unwrap()
}

fn said(result: &CallToolResult) -> &Value {
    result.structured_content.as_ref().unwrap()
}

fn is_replayed(result: &CallToolResult) -> bool {
    serde_json::to_value(&result.meta).unwrap()["onlyonce/replayed"] == true
}

#[tokio::test]
async fn d0_7_2_an_agent_that_retries_with_its_key_submits_once() {
    let bed = Bed::new().await;
    for (client, key) in [
        (over_http(&bed).await, KEY.to_owned()),
        (over_stream(&bed).await, format!("{KEY}-2")),
    ] {
        let submit = json!({"fields": {"companyName": "Acme Corp"}, "idempotencyKey": key});

        let first = call(
            &client,
            "formbridge_vendor-onboarding_submit",
            submit.clone(),
        )
        .await;
        let retry = call(&client, "formbridge_vendor-onboarding_submit", submit).await;

        assert_eq!(said(&first)["state"], "submitted");
        assert_eq!(said(&retry)["submissionId"], said(&first)["submissionId"]);
        assert_eq!((is_replayed(&first), is_replayed(&retry)), (false, true));
        let id = said(&first)["submissionId"].as_str().unwrap();
        let path = format!("/api/submissions/{id}/events");
        let both = |found: &Value| found["events"].as_array().unwrap().len() == 2;
        let events = bed.until(&path, both).await;
        assert_eq!(events["events"][0]["type"], "submission.submitted");
        assert_eq!(events["events"][1]["type"], "submission.replayed");
        client.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn d0_7_2_every_step_of_an_intake_is_a_tool() {
    let bed = Bed::new().await;
    let client = over_http(&bed).await;

    let tools = client.list_all_tools().await.unwrap();
    let names: BTreeSet<_> = tools.iter().map(|tool| tool.name.to_string()).collect();
    let draft = call(
        &client,
        "formbridge_access-request_create",
        json!({"fields": {"system": "vpn"}, "idempotencyKey": "draft-1"}),
    );
    let draft = draft.await;
    let id = said(&draft)["submissionId"].as_str().unwrap().to_owned();
    let early = call(
        &client,
        "formbridge_access-request_validate",
        json!({"submissionId": id}),
    );
    let early = early.await;
    let set =
        json!({"submissionId": id, "fields": {"reason": "travel"}, "idempotencyKey": "set-1"});
    let set = call(&client, "formbridge_access-request_set", set).await;
    let submit = json!({"submissionId": id, "idempotencyKey": "submit-1"});
    let submitted = call(&client, "formbridge_access-request_submit", submit).await;

    for intake in ["vendor-onboarding", "access-request"] {
        for step in ["create", "set", "validate", "submit"] {
            assert!(
                names.contains(&format!("formbridge_{intake}_{step}")),
                "{names:?}"
            );
        }
    }
    for tool in &tools {
        let has_key = tool.input_schema["properties"]
            .get("idempotencyKey")
            .is_some();
        assert_eq!(has_key, !tool.name.ends_with("_validate"), "{}", tool.name);
    }
    assert_eq!(said(&early)["valid"], false);
    assert_eq!(
        said(&set)["fields"],
        json!({"system": "vpn", "reason": "travel"})
    );
    assert_eq!(said(&submitted)["state"], "submitted");
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn d0_7_2_a_key_used_for_other_fields_is_a_tool_error() {
    let bed = Bed::new().await;
    let client = over_http(&bed).await;
    let submit = |company: &str| json!({"fields": {"companyName": company}, "idempotencyKey": KEY});

    let first = call(
        &client,
        "formbridge_vendor-onboarding_submit",
        submit("Acme Corp"),
    )
    .await;
    let other = call(
        &client,
        "formbridge_vendor-onboarding_submit",
        submit("Another"),
    )
    .await;

    assert_eq!((first.is_error, other.is_error), (Some(false), Some(true)));
    assert_eq!(said(&other)["error"]["type"], "conflict", "{other:?}");
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn d0_7_2_a_tool_and_the_http_api_share_their_records() {
    let bed = Bed::new().await;
    let client = over_http(&bed).await;
    let token = bed.token("agent", "agent_xyz").await;

    let by_http = bed
        .post("/api/intakes/vendor-onboarding/submit")
        .key(KEY)
        .json(json!({"fields": {"companyName": "Acme Corp"}}))
        .send()
        .await;
    let by_agent = bed
        .post("/api/intakes/vendor-onboarding/submit")
        .key(KEY)
        .token(&token)
        .json(json!({"fields": {"companyName": "Acme Corp"}}))
        .send()
        .await;
    let submit = json!({"fields": {"companyName": "Acme Corp"}, "idempotencyKey": KEY});
    let by_tool = call(&client, "formbridge_vendor-onboarding_submit", submit).await;

    assert!(is_replayed(&by_tool));
    assert_eq!(
        said(&by_tool)["submissionId"],
        by_http.text_at("submissionId")
    );
    assert_ne!(
        by_agent.text_at("submissionId"),
        by_http.text_at("submissionId")
    );
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn d1_under_formbridge_008_tools_need_a_key_of_up_to_256_characters_and_mark_replays() {
    let bed = Bed::with(|options| "formbridge-008".clone_into(&mut options.intake_profile)).await;
    let client = over_http(&bed).await;
    let longest = "k".repeat(256);
    let submit = |key: Value| json!({"fields": {"companyName": "Acme"}, "idempotencyKey": key});
    let tool = "formbridge_vendor-onboarding_submit";

    let tools = client.list_all_tools().await.unwrap();
    let first = call(&client, tool, submit(json!(longest))).await;
    let retry = call(&client, tool, submit(json!(longest))).await;
    let longer = call(&client, tool, submit(json!(format!("{longest}k")))).await;
    let without = call(&client, tool, submit(Value::Null)).await;

    for tool in &tools {
        let schema = Value::Object((*tool.input_schema).clone());
        let required = schema["required"].to_string();
        // A POST needs a key, a PATCH may have one, and what changes nothing takes none.
        let (is_taken, is_needed) = match tool.name.rsplit('_').next().unwrap() {
            "create" | "submit" => (true, true),
            "set" => (true, false),
            _ => (false, false),
        };
        let key = &schema["properties"]["idempotencyKey"];
        assert_eq!(key.is_object(), is_taken, "{}", tool.name);
        assert_eq!(required.contains("idempotencyKey"), is_needed, "{schema}");
        if is_taken {
            assert_eq!(key["maxLength"], 256);
        }
    }
    assert_eq!((is_replayed(&first), is_replayed(&retry)), (false, true));
    assert_eq!(said(&retry)["submissionId"], said(&first)["submissionId"]);
    for refused in [longer, without] {
        assert_eq!(refused.is_error, Some(true), "{refused:?}");
    }
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn the_server_of_the_tools_says_its_own_name() {
    let bed = Bed::new().await;
    let client = over_http(&bed).await;

    let server = client.peer_info().unwrap().server_info.clone();

    let server = serde_json::to_value(server).unwrap();
    assert_eq!(
        (&server["name"], &server["version"]),
        (&json!("onlyonce-demo"), &json!(env!("CARGO_PKG_VERSION")))
    );
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn an_intake_may_have_underscores_in_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let definition = |id: &str| {
        let fields = json!({"companyName": {"type": "string", "required": true}});
        json!({"id": id, "title": id, "fields": fields, "idempotency": {"enabled": true}})
    };
    // The tools of one must not be taken for those of the other.
    let path = intakes(
        &folder,
        &json!([definition("vendor"), definition("vendor_submit")]),
    );
    let bed = Bed::with(|options| options.intakes = Some(path)).await;
    let client = over_http(&bed).await;
    let fields = json!({"fields": {"companyName": "Acme"}});

    let of_one = call(&client, "formbridge_vendor_submit", fields.clone()).await;
    let of_other = call(&client, "formbridge_vendor_submit_submit", fields.clone()).await;
    let by_http = bed.post("/api/intakes/vendor_submit/submit").json(fields);

    assert_eq!(by_http.send().await.status, 201);
    for (made, intake) in [(of_one, "vendor"), (of_other, "vendor_submit")] {
        let id = said(&made)["submissionId"].as_str().unwrap().to_owned();
        let kept = bed.get(&format!("/api/submissions/{id}")).await;
        assert_eq!(kept.text_at("intakeId"), intake);
    }
    client.cancel().await.unwrap();
}
