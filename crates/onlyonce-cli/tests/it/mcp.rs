//! `onlyonce mcp` in front of a third-party server from a registry, with a client of the official
//! SDK. Its tool `edit_file` can be counted: each time it runs, the note has one more stroke.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use self::agent::{Agent, Notes, text, until};
use crate::support::program::{RUN_MAX, onlyonce, run};

pub(crate) mod agent;
mod servers;

const KEY: &str = "idem_8f14e45f-ceea-467f-a8d1-3c2b0b7de8a9";

fn is_replayed(result: &CallToolResult) -> bool {
    let meta = serde_json::to_value(&result.meta).unwrap();
    meta["onlyonce/replayed"] == true
}

fn refused(result: &CallToolResult) -> Value {
    assert_eq!(result.is_error, Some(true), "{result:?}");
    serde_json::to_value(&result.meta).unwrap()["onlyonce/refused"]["reason"].clone()
}

#[tokio::test]
async fn an_agent_s_retry_loop_runs_a_third_party_tool_once() {
    let notes = Notes::new();
    let agent = notes.agent(&[]).await;

    let mut replayed = Vec::new();
    for _ in 0..5 {
        let result = agent.call("edit_file", &notes.stroke(KEY)).await.unwrap();
        assert!(text(&result).contains("+|end"), "{result:?}");
        replayed.push(is_replayed(&result));
    }

    assert_eq!(notes.strokes(), 1);
    assert_eq!(replayed, [false, true, true, true, true]);
    let received = notes.received();
    assert_eq!(received.matches("edit_file").count(), 1, "{received}");
    assert!(
        !received.contains("idempotencyKey") && !received.contains(KEY),
        "{received}"
    );
}

#[tokio::test]
async fn a_new_key_and_no_key_at_all_run_the_tool_each_time() {
    let notes = Notes::new();
    let agent = notes.agent(&[]).await;
    let mut unkeyed = notes.stroke(KEY);
    unkeyed.as_object_mut().unwrap().remove("idempotencyKey");

    agent.call("edit_file", &notes.stroke(KEY)).await.unwrap();
    agent
        .call("edit_file", &notes.stroke("another"))
        .await
        .unwrap();
    agent.call("edit_file", &unkeyed).await.unwrap();
    agent.call("edit_file", &unkeyed).await.unwrap();

    assert_eq!(notes.strokes(), 4);
}

#[tokio::test]
async fn a_model_sees_the_key_where_a_tool_may_act_and_only_there() {
    let notes = Notes::new();
    let agent = notes.agent(&["--except", "create_*"]).await;

    let tools = agent.tools().await;

    let has_key = |name: &str| {
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        tool.input_schema["properties"]
            .get("idempotencyKey")
            .is_some()
    };
    assert!(has_key("edit_file") && has_key("write_file") && has_key("move_file"));
    assert!(!has_key("read_text_file") && !has_key("list_directory"));
    assert!(!has_key("create_directory"));
}

#[tokio::test]
async fn a_proxy_killed_between_effect_and_answer_does_not_run_the_tool_again() {
    let notes = Notes::new();
    let records = format!("file:{}", notes.path().join("records").display());

    killed_between_effect_and_answer(&notes, &["--store", &records]).await;
}

#[tokio::test]
async fn a_proxy_killed_on_its_default_store_does_not_run_the_tool_again() {
    killed_between_effect_and_answer(&Notes::new(), &[]).await;
}

async fn killed_between_effect_and_answer(notes: &Notes, flags: &[&str]) {
    let first = notes.agent(flags).await;
    first.tools().await;
    std::fs::write(notes.path().join("hold"), "").unwrap();

    let stroke = notes.stroke(KEY);
    let calling = first.call("edit_file", &stroke);
    let killing = async {
        let answered = || std::fs::read_to_string(notes.path().join("answered")).unwrap();
        until(|| answered().contains("+|end")).await;
        assert_eq!(notes.strokes(), 1);
        first.kill();
    };
    let (lost, ()) = tokio::join!(calling, killing);
    std::fs::remove_file(notes.path().join("hold")).unwrap();
    assert!(lost.is_err(), "{lost:?}");

    // What an agent does: it tries again, reads what it is told, and looks.
    let second = notes.agent(flags).await;
    for _ in 0..2 {
        let retry = second.call("edit_file", &stroke).await.unwrap();
        assert_eq!(refused(&retry), "outcome-unknown");
        assert!(
            text(&retry).contains("First find out whether it took effect"),
            "{retry:?}"
        );
    }
    let look = json!({"path": notes.note()});
    let seen = second.call("read_text_file", &look).await.unwrap();

    assert_eq!(text(&seen), "|end");
    assert_eq!(notes.strokes(), 1);
    let received = notes.received();
    assert_eq!(received.matches("edit_file").count(), 1, "{received}");
    assert!(!received.contains(KEY), "{received}");
}

#[tokio::test]
async fn a_result_outlives_the_proxy_and_is_shared_by_those_that_run_at_once() {
    let notes = Notes::new();
    let (first, beside) = tokio::join!(notes.agent(&[]), notes.agent(&[]));
    let result = first.call("edit_file", &notes.stroke(KEY)).await.unwrap();
    first.leave().await;
    let later = notes.agent(&[]).await;

    for agent in [&beside, &later] {
        let retry = agent.call("edit_file", &notes.stroke(KEY)).await.unwrap();
        assert_eq!((text(&retry), is_replayed(&retry)), (text(&result), true));
    }

    assert_eq!(notes.strokes(), 1);
    let kept = notes.path().join("state/onlyonce");
    assert!(kept.join("mcp.db").is_file());
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn keys_are_made_from_conversation_and_content_if_asked_for() {
    let notes = Notes::new();
    let flags = ["--derive", "--conversation", "c-1"];
    let mut unkeyed = notes.stroke(KEY);
    unkeyed.as_object_mut().unwrap().remove("idempotencyKey");

    for _ in 0..2 {
        let agent = notes.agent(&flags).await;
        agent.call("edit_file", &unkeyed).await.unwrap();
        agent.leave().await;
    }
    assert_eq!(notes.strokes(), 1);
    let elsewhere = notes.agent(&["--derive"]).await;
    elsewhere.call("edit_file", &unkeyed).await.unwrap();

    assert_eq!(notes.strokes(), 2);
}

/// claude-code #36149: one call of the model is dispatched twice, under two names.
#[tokio::test]
async fn one_call_under_two_names_runs_once_where_names_do_not_count() {
    for (flags, strokes) in [
        (&["--derive"][..], 2),
        (&["--derive", "--call-id", "none"], 1),
    ] {
        let notes = Notes::new();
        let mut unkeyed = notes.stroke(KEY);
        unkeyed.as_object_mut().unwrap().remove("idempotencyKey");
        let agent = notes.agent(flags).await;

        agent.call_named("edit_file", &unkeyed, "toolu_1").await;
        agent.call_named("edit_file", &unkeyed, "toolu_2").await;

        assert_eq!(notes.strokes(), strokes, "{flags:?}");
    }
}

#[tokio::test]
async fn the_guide_s_configuration_works_as_it_is_written() {
    let guide = include_str!("../../../../docs/guides/agent-tools.md");
    let block = guide
        .split("```json\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let notes = Notes::new();
    let folder = notes.path().join("notes");
    let written = block.replace("/home/me/notes", folder.to_str().unwrap());
    let config: Value = serde_json::from_str(&written).unwrap();
    let server = &config["mcpServers"]["notes"];

    // As a client starts it: `onlyonce` is in the PATH, and npx finds what is installed already.
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_onlyonce"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let words = server["args"].as_array().unwrap().iter();
    let mut command = Command::new(program.with_file_name(server["command"].as_str().unwrap()));
    command
        .args(words.map(|word| word.as_str().unwrap()))
        .env("PATH", path)
        .env("XDG_STATE_HOME", notes.path())
        .current_dir(servers::installed());
    let agent = Agent::start(command).await;
    for _ in 0..2 {
        agent.call("edit_file", &notes.stroke(KEY)).await.unwrap();
    }

    assert_eq!(notes.strokes(), 1);
}

#[tokio::test]
async fn the_demo_offers_its_intakes_as_tools_on_stdin_and_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command
        .args([
            "demo",
            "--mcp",
            "--listen=127.0.0.1:0",
            "--admin=127.0.0.1:0",
            "--data",
        ])
        .arg(folder.path());
    let agent = Agent::start(command).await;
    let submit = json!({"fields": {"companyName": "Acme Corp"}, "idempotencyKey": KEY});

    let tool = "formbridge_vendor-onboarding_submit";
    let first = agent.call(tool, &submit).await.unwrap();
    let retry = agent.call(tool, &submit).await.unwrap();

    let id = |result: &CallToolResult| {
        result.structured_content.clone().unwrap()["submissionId"].clone()
    };
    assert_eq!(id(&first), id(&retry));
    assert_eq!((is_replayed(&first), is_replayed(&retry)), (false, true));
    agent.leave().await;
}

#[tokio::test]
async fn stdout_is_the_protocol_s_and_the_server_s_end_is_ours() {
    let mut program = onlyonce(&[
        "mcp",
        "--store=memory:",
        "--",
        "sh",
        "-c",
        "echo hello; exit 7",
    ])
    .stdin(Stdio::piped())
    .spawn()
    .unwrap();
    let open = program.stdin.take();

    let output = timeout(RUN_MAX, program.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    drop(open);

    assert_eq!(String::from_utf8(output.stdout).unwrap(), "hello\n");
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "onlyonce: the server has ended: exit status: 7\n");
}

#[tokio::test]
async fn it_ends_when_it_is_told_to() {
    let mut program = onlyonce(&[
        "mcp",
        "--store=memory:",
        "--",
        "sh",
        "-c",
        "echo hello; cat",
    ])
    .stdin(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let said = timeout(RUN_MAX, lines.next_line()).await.unwrap().unwrap();
    assert_eq!(said.as_deref(), Some("hello"));

    let process = program.id().unwrap().to_string();
    let told = std::process::Command::new("kill").arg(process).status();
    assert!(told.unwrap().success());
    let status = timeout(RUN_MAX, program.wait()).await.unwrap().unwrap();

    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn what_cannot_work_is_told_with_what_to_do() {
    for (args, says) in [
        (&["mcp"][..], "COMMAND"),
        (
            &["mcp", "--store=memory:", "--", "/no/such/server"],
            "the server cannot be started",
        ),
        (
            &["mcp", "--store=nonsense:", "--", "cat"],
            "no store has URLs",
        ),
        (
            &["mcp", "--tools=[", "--", "cat"],
            "a pattern cannot be read",
        ),
        (&["mcp", "--conversation=c", "--", "cat"], "--derive"),
        (&["mcp", "--on-lapse=maybe", "--", "cat"], "hold, rerun"),
    ] {
        let (code, out, err) = run(args).await;

        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
}

#[tokio::test]
async fn the_help_of_mcp_teaches() {
    let (code, out, _) = run(&["mcp", "--help"]).await;

    assert_eq!(code, 0);
    for taught in [
        "onlyonce mcp -- npx",
        "idempotencyKey",
        "--derive",
        "guess",
        "keys resolve",
    ] {
        assert!(out.contains(taught), "{taught}: {out}");
    }
}
