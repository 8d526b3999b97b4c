//! The shop, what stands before it, and its clients.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines as Reading};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use super::Way;
use crate::support::program::{RUN_MAX, onlyonce};

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// One version of the SDK: its interpreter has the packages of these requirements, and no others.
struct Sdk {
    name: &'static str,
    server: &'static str,
    requirements: &'static str,
    made: OnceCell<()>,
}

/// Up to revision 2025-11-25: with a handshake, and with sessions.
static CLASSIC: Sdk = Sdk {
    name: "python-mcp-1",
    server: "server.py",
    requirements: include_str!("requirements.txt"),
    made: OnceCell::const_new(),
};
/// Revision 2026-07-28.
static MODERN: Sdk = Sdk {
    name: "python-mcp-2",
    server: "modern_server.py",
    requirements: include_str!("modern_requirements.txt"),
    made: OnceCell::const_new(),
};

impl Sdk {
    fn python(&self) -> PathBuf {
        self.folder().join("bin/python")
    }

    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(self.name)
    }

    /// Makes the virtual environment, once.
    async fn make(&self) {
        let make = async || {
            let folder = self.folder();
            let noted = folder.join("requirements.txt");
            if fs::read_to_string(&noted).is_ok_and(|it| it == self.requirements) {
                return;
            }
            drop(fs::remove_dir_all(&folder));
            done(Command::new("python3").args(["-m", "venv"]).arg(&folder)).await;
            let wanted = folder.join("wanted.txt");
            fs::write(&wanted, self.requirements).unwrap();
            let mut pip = Command::new(self.python());
            pip.args(["-m", "pip", "install", "--no-deps", "--quiet", "-r"]);
            done(pip.arg(&wanted)).await;
            // Last, so that half an installation is never taken for one.
            fs::rename(&wanted, &noted).unwrap();
        };
        self.made.get_or_init(make).await;
    }
}

async fn done(command: &mut Command) -> Output {
    let output = command.kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/mcp_http")
        .join(name)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

async fn until_open(port: u16) {
    let open = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
        {
            sleep(LOOK_AGAIN).await;
        }
    };
    timeout(RUN_MAX, open).await.expect("it listens");
}

/// The SDK's server.
pub(super) struct Shop {
    folder: TempDir,
    modes: Vec<String>,
    port: u16,
    /// Where its gateways listen, one after the other: the host that is asked for is part of the scope.
    gateway_port: u16,
    server: Child,
    sdk: &'static Sdk,
}

impl Shop {
    pub(super) async fn open(modes: &[&str]) -> Self {
        Self::on(&CLASSIC, modes).await
    }

    /// The same under revision 2026-07-28.
    pub(super) async fn open_modern() -> Self {
        Self::on(&MODERN, &[]).await
    }

    async fn on(sdk: &'static Sdk, modes: &[&str]) -> Self {
        sdk.make().await;
        let folder = tempfile::tempdir().unwrap();
        let modes: Vec<_> = modes.iter().map(|it| (*it).to_owned()).collect();
        let port = free_port();
        let server = serve(sdk, folder.path(), port, &modes).await;
        Self {
            folder,
            modes,
            port,
            gateway_port: free_port(),
            server,
            sdk,
        }
    }

    pub(super) async fn close(&mut self) {
        drop(self.server.kill().await);
    }

    /// The same after it died: nothing of it is left but its ledger.
    pub(super) async fn open_again(&mut self) {
        self.server.wait().await.unwrap();
        self.server = serve(self.sdk, self.folder.path(), self.port, &self.modes).await;
    }

    /// Lets slow orders come to their end.
    pub(super) fn let_go(&self) {
        fs::write(self.folder.path().join("go"), "").unwrap();
    }

    /// When it dies with the tool that does so.
    pub(super) fn dies(&self, when: Option<&str>) {
        let file = self.folder.path().join("die");
        match when {
            Some(when) => fs::write(file, when).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
    }

    pub(super) fn effects(&self) -> Vec<String> {
        let ledger = fs::read_to_string(self.folder.path().join("ledger"));
        let ledger = ledger.unwrap_or_default();
        ledger.lines().map(str::to_owned).collect()
    }

    pub(super) async fn until_effects(&self, count: usize) {
        let there = async {
            while self.effects().len() < count {
                sleep(LOOK_AGAIN).await;
            }
        };
        timeout(RUN_MAX, there).await.expect("the tool acts");
    }

    /// What stands before it, on the store of the shop's folder, with a way to verify.
    pub(super) async fn front(&self, way: Way, verify: &str) -> Front {
        let store = format!("sqlite:{}", self.folder.path().join("store.db").display());
        let server = format!("http://127.0.0.1:{}", self.port);
        let mut front = Front {
            way,
            url: format!("{server}/mcp"),
            store,
            verify: verify.to_owned(),
            gateway: None,
        };
        let port = self.gateway_port;
        let program = match way {
            Way::Gateway => {
                let settings = self.folder.path().join("gateway.toml");
                fs::write(&settings, front.settings(&server, port)).unwrap();
                onlyonce(&["gateway", "--config", settings.to_str().unwrap()])
            }
            Way::Listen => self.listening(&front, port),
            Way::Proxy => return front,
        };
        front.gateway = Some(program_of(program, port).await);
        front.url = format!("http://127.0.0.1:{port}/mcp");
        front
    }

    /// The program before servers on pipes, which have the same ledger.
    fn listening(&self, front: &Front, port: u16) -> Command {
        let address = format!("127.0.0.1:{port}");
        let mut listening = onlyonce(&["mcp", "--listen", &address, "--store", &front.store]);
        if !front.verify.is_empty() {
            listening.args(["--reconcile", &front.verify]);
        }
        listening.arg("--").arg(self.sdk.python());
        listening
            .arg(script(self.sdk.server))
            .arg(self.folder.path());
        listening.args(["0", "stdio"]);
        listening
    }
}

/// A gateway before a server on pipes, which the program puts on the network; and that program.
pub(super) async fn before(command: &[String], folder: &Path) -> (Front, Child) {
    CLASSIC.make().await;
    let (port, gateway_port) = (free_port(), free_port());
    let address = format!("127.0.0.1:{port}");
    let mut listening = onlyonce(&["mcp", "--listen", &address, "--store", "memory:", "--"]);
    listening.args(command);
    let listening = program_of(listening, port).await;
    let mut front = Front {
        way: Way::Gateway,
        url: format!("http://127.0.0.1:{gateway_port}/mcp"),
        store: format!("sqlite:{}", folder.join("store.db").display()),
        verify: String::new(),
        gateway: None,
    };
    let settings = folder.join("gateway.toml");
    let text = front.settings(&format!("http://{address}"), gateway_port);
    fs::write(&settings, text).unwrap();
    let gateway = onlyonce(&["gateway", "--config", settings.to_str().unwrap()]);
    front.gateway = Some(program_of(gateway, gateway_port).await);
    (front, listening)
}

async fn program_of(mut program: Command, port: u16) -> Child {
    let program = program.stderr(Stdio::inherit()).spawn().unwrap();
    until_open(port).await;
    program
}

async fn serve(sdk: &Sdk, folder: &Path, port: u16, modes: &[String]) -> Child {
    let mut server = Command::new(sdk.python());
    server
        .arg(script(sdk.server))
        .arg(folder)
        .arg(port.to_string())
        .args(modes)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let server = server.spawn().unwrap();
    until_open(port).await;
    server
}

/// A gateway, or what starts a proxy, before the shop.
pub(super) struct Front {
    way: Way,
    url: String,
    store: String,
    verify: String,
    gateway: Option<Child>,
}

impl Front {
    fn settings(&self, server: &str, port: u16) -> String {
        let verify = match self.verify.as_str() {
            "" => String::new(),
            verify => format!("mcp.reconcile = ['''{verify}''']\n"),
        };
        format!(
            "listen = \"127.0.0.1:{port}\"\nadmin = \"127.0.0.1:0\"\nstore = \"{}\"\n\
             upstream = \"{server}\"\n[rules]\nlease = \"5s\"\n\
             [[route]]\nmatch = \"* /mcp\"\nprotocol = \"mcp\"\n{verify}",
            self.store
        )
    }

    /// Where clients reach it over HTTP.
    pub(super) fn address(&self) -> SocketAddr {
        let uri: http::Uri = self.url.parse().unwrap();
        uri.authority().unwrap().as_str().parse().unwrap()
    }

    /// Clients reach it by way of this.
    pub(super) fn is_reached_at(&mut self, address: SocketAddr) {
        self.url = format!("http://{address}/mcp");
    }

    /// What `onlyonce` is called with as a proxy.
    pub(super) fn arguments(&self) -> Vec<&str> {
        let mut arguments = vec!["mcp", "--upstream", &self.url, "--store", &self.store];
        if !self.verify.is_empty() {
            arguments.extend(["--reconcile", &self.verify]);
        }
        arguments
    }

    fn command(&self, caller: Option<&str>, scenario: &str, more: &[(&str, &str)]) -> Command {
        let mut client = Command::new(CLASSIC.python());
        client.arg(script("client.py")).arg(scenario).arg(&self.url);
        client.args(caller);
        self.prepare(client, more)
    }

    /// What a client of revision 2026-07-28 hears.
    pub(super) async fn modern_client(&self) -> Value {
        let mut client = Command::new(MODERN.python());
        client.arg(script("modern_client.py")).arg(&self.url);
        heard(self.prepare(client, &[]).spawn().unwrap()).await
    }

    fn prepare(&self, mut client: Command, more: &[(&str, &str)]) -> Command {
        if let Way::Proxy = self.way {
            client.arg("--").arg(env!("CARGO_BIN_EXE_onlyonce"));
            client.args(self.arguments());
        }
        client
            .envs(more.iter().copied())
            .env("NO_PROXY", "127.0.0.1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        client
    }

    pub(super) fn start(&self, scenario: &str, more: &[(&str, &str)]) -> Child {
        self.command(None, scenario, more).spawn().unwrap()
    }

    /// What a client hears.
    pub(super) async fn client(&self, scenario: &str, more: &[(&str, &str)]) -> Value {
        heard(self.start(scenario, more)).await
    }

    pub(super) async fn client_as(
        &self,
        caller: &str,
        scenario: &str,
        more: &[(&str, &str)],
    ) -> Value {
        heard(self.command(Some(caller), scenario, more).spawn().unwrap()).await
    }

    pub(super) async fn try_client(&self, scenario: &str, more: &[(&str, &str)]) -> Option<Value> {
        try_heard(self.start(scenario, more)).await.ok()
    }

    /// What a client hears once nobody holds its key any more and it can be told.
    pub(super) async fn settled(&self, scenario: &str, more: &[(&str, &str)]) -> Value {
        let settled = async {
            loop {
                let heard = self.try_client(scenario, more).await;
                match heard {
                    Some(heard) if heard["refused"] != "in-progress" && !is_early(&heard, self) => {
                        return heard;
                    }
                    Some(_) | None => sleep(LOOK_AGAIN).await,
                }
            }
        };
        timeout(RUN_MAX, settled).await.expect("it is settled")
    }

    pub(super) async fn kill(mut self) {
        let mut gateway = self.gateway.take().unwrap();
        gateway.kill().await.unwrap();
    }
}

/// With a verifying tool, what is unknown is asked about again.
fn is_early(heard: &Value, front: &Front) -> bool {
    !front.verify.is_empty() && heard["refused"] == "outcome-unknown"
}

pub(super) async fn heard(client: Child) -> Value {
    try_heard(client).await.unwrap()
}

async fn try_heard(client: Child) -> Result<Value, String> {
    let output = timeout(RUN_MAX, client.wait_with_output()).await;
    let output = output.expect("the client ends").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(said.trim()).map_err(|_| format!("{output:?}"))
}

/// A client that writes its lines by hand.
pub(super) struct Lines {
    _program: Child,
    input: ChildStdin,
    output: Reading<BufReader<ChildStdout>>,
}

impl Lines {
    pub(super) fn of(mut program: Child) -> Self {
        let (input, output) = (
            program.stdin.take().unwrap(),
            program.stdout.take().unwrap(),
        );
        Self {
            _program: program,
            input,
            output: BufReader::new(output).lines(),
        }
    }

    async fn say(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    async fn answer_to(&mut self, id: u64) -> Value {
        loop {
            let line = timeout(RUN_MAX, self.output.next_line()).await;
            let line = line.expect("it answers").unwrap().expect("it is there");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    pub(super) async fn begin(&mut self) {
        self.say(
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }}),
        )
        .await;
        self.answer_to(1).await;
        self.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
    }

    pub(super) async fn order(&mut self, id: u64, item: &str) -> Value {
        let arguments = json!({"item": item, "idempotencyKey": format!("key-{id}")});
        self.say(
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
                "name": "order",
                "arguments": arguments,
            }}),
        )
        .await;
        self.answer_to(id).await
    }
}
