//! An agent: a client of the official SDK, with `onlyonce mcp` as its server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CallToolResult, Tool};
use rmcp::service::{RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::servers;

/// A folder with a note, and what went to and fro.
pub(crate) struct Notes {
    folder: TempDir,
}

impl Notes {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("notes")).unwrap();
        let notes = Self { folder };
        std::fs::write(notes.note(), "end").unwrap();
        notes
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn note(&self) -> PathBuf {
        self.path().join("notes").join("note.txt")
    }

    /// How often the tool has run: each time it writes one more stroke.
    pub(crate) fn strokes(&self) -> usize {
        std::fs::read_to_string(self.note())
            .unwrap()
            .matches('|')
            .count()
    }

    /// Every line the server got.
    pub(crate) fn received(&self) -> String {
        std::fs::read_to_string(self.path().join("received")).unwrap()
    }

    /// The server's command, with its lines written down.
    pub(crate) fn server(&self) -> Vec<String> {
        let gate = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mcp/gate.sh");
        let words = [
            Path::new("sh"),
            &gate,
            self.path(),
            Path::new("node"),
            &servers::filesystem(),
            &self.path().join("notes"),
        ];
        words
            .iter()
            .map(|word| word.to_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) async fn agent(&self, flags: &[&str]) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.arg("mcp").args(flags).arg("--").args(self.server());
        command.env("XDG_STATE_HOME", self.path().join("state"));
        Agent::start(command).await
    }

    /// What `edit_file` is asked, each time for one more stroke.
    pub(crate) fn stroke(&self, key: &str) -> Value {
        json!({
            "path": self.note(),
            "edits": [{"oldText": "end", "newText": "|end"}],
            "idempotencyKey": key,
        })
    }
}

pub(crate) struct Agent {
    client: RunningService<RoleClient, ()>,
    process: u32,
}

impl Agent {
    pub(crate) async fn start(command: Command) -> Self {
        let child = TokioChildProcess::new(command).unwrap();
        let process = child.id().unwrap();
        let client = ().serve(child).await.unwrap();
        Self { client, process }
    }

    pub(crate) async fn tools(&self) -> Vec<Tool> {
        self.client.list_all_tools().await.unwrap()
    }

    pub(crate) async fn call(
        &self,
        tool: &'static str,
        arguments: &Value,
    ) -> Result<CallToolResult, ServiceError> {
        let arguments = arguments.as_object().unwrap().clone();
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        self.client.call_tool(call).await
    }

    /// A call that the client's model has made under this name, as Claude Code says it.
    pub(crate) async fn call_named(
        &self,
        tool: &'static str,
        arguments: &Value,
        name: &str,
    ) -> CallToolResult {
        let arguments = arguments.as_object().unwrap().clone();
        let mut call = CallToolRequestParams::new(tool).with_arguments(arguments);
        let meta = json!({"claudecode/toolUseId": name});
        call.meta = Some(serde_json::from_value(meta).unwrap());
        self.client.call_tool(call).await.unwrap()
    }

    /// Kills the proxy, and nothing else, with no chance to do anything.
    pub(crate) fn kill(&self) {
        let process = self.process.to_string();
        let killed = std::process::Command::new("kill")
            .args(["-9", &process])
            .status();
        assert!(killed.unwrap().success());
    }

    pub(crate) async fn leave(self) {
        self.client.cancel().await.unwrap();
    }
}

pub(crate) fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

/// Returns once it is so. Far more than that takes is a failure; nothing depends on how long.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to that");
}
