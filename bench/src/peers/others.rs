//! The peers: what they need to be installed, and how each is put in front of the trivial handler.
//! Their programs are in `bench/peers`.

use std::process::Command;
use std::time::Duration;

use onlyonce_testkit::servers::Server as _;

use super::install::Kit;
use super::ours;
use super::who::{Bed, Started};
use crate::client::{Client, Post};
use crate::failure::Failure;
use crate::process::free_port;
use crate::tool::NODE;

pub(super) const RESTATE: Kit = Kit {
    name: "restate",
    files: &[
        ("package.json", "{\"private\":true}\n"),
        ("main.mjs", include_str!("../../peers/restate.mjs")),
    ],
    steps: &[
        "npm install --no-audit --no-fund @restatedev/restate-server@1.7.12 \
         @restatedev/restate-sdk@1.17.2",
    ],
};

pub(super) const EXPRESS: Kit = Kit {
    name: "express",
    files: &[
        ("package.json", "{\"private\":true}\n"),
        (
            "main.cjs",
            include_str!("../../peers/express_idempotency.cjs"),
        ),
    ],
    steps: &["npm install --no-audit --no-fund express@5.3.0 express-idempotency@1.0.6"],
};

pub(super) const ASGI: Kit = Kit {
    name: "asgi",
    files: &[(
        "main.py",
        include_str!("../../peers/asgi_idempotency_header.py"),
    )],
    steps: &[
        "python3 -m venv venv",
        "venv/bin/pip install -q asgi-idempotency-header==0.2.0 starlette fastapi uvicorn redis",
    ],
};

pub(super) const IDEMKIT: Kit = Kit {
    name: "idemkit",
    files: &[("main.py", include_str!("../../peers/idemkit.py"))],
    steps: &[
        "python3 -m venv venv",
        "venv/bin/pip install -q idemkit==1.0.2 starlette uvicorn redis",
    ],
};

pub(super) const POWERTOOLS: Kit = Kit {
    name: "powertools",
    files: &[("main.py", include_str!("../../peers/powertools.py"))],
    steps: &[
        "python3 -m venv venv",
        "venv/bin/pip install -q aws-lambda-powertools==3.37.0 boto3 starlette uvicorn redis",
    ],
};

pub(super) const AXUM: Kit = Kit {
    name: "axum-idempotent",
    files: &[
        (
            "Cargo.toml",
            r#"[package]
name = "peer-axum-idempotent"
edition = "2024"

[dependencies]
axum = "0.8"
axum-idempotent = "=0.6.0"
ruts = { version = "0.13", features = ["moka-store"] }
tokio = { version = "1", features = ["full"] }
tower-cookies = "0.11"

[profile.release]
lto = "fat"
codegen-units = 1

[workspace]
"#,
        ),
        (
            "src/main.rs",
            include_str!("../../peers/axum_idempotent.rs"),
        ),
    ],
    steps: &["cargo build --release"],
};

pub(super) const ACTIX: Kit = Kit {
    name: "actix-idempotent",
    files: &[
        (
            "Cargo.toml",
            r#"[package]
name = "peer-actix-idempotent"
edition = "2024"

[dependencies]
actix-idempotent = "=0.1.1"
actix-session = { version = "0.10", features = ["redis-session", "redis-pool"] }
actix-web = { version = "4", features = ["cookies", "secure-cookies"] }

[profile.release]
lto = "fat"
codegen-units = 1

[workspace]
"#,
        ),
        (
            "src/main.rs",
            include_str!("../../peers/actix_idempotent.rs"),
        ),
    ],
    steps: &["cargo build --release"],
};

pub(super) const PROXY: Kit = Kit {
    name: "idempotent-proxy-server",
    // It does not start without one.
    files: &[(".env", "")],
    steps: &["cargo install --locked --root . --version =1.2.2 idempotent-proxy-server"],
};

/// The server, which clients talk to, and the handler as a service of its own.
pub(super) fn restate(bed: &Bed<'_>) -> Result<Started, Failure> {
    let folder = bed.kits.join(RESTATE.name);
    let mut command = NODE.command()?;
    command.arg("main.mjs").current_dir(&folder);
    command.env("RESTATE_LOGGING", "ERROR");
    let (service, service_port) = bed.serve(command)?;

    let data = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
    let [node, admin, ingress] = [free_port()?, free_port()?, free_port()?];
    let address = |port: u16| format!("127.0.0.1:{port}");
    let binary = "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server";
    let mut command = Command::new(folder.join(binary));
    command.arg("--no-logo").arg("--base-dir").arg(data.path());
    command
        .env("RESTATE_LISTEN_MODE", "tcp")
        .env("RESTATE_BIND_ADDRESS", address(node))
        .env("RESTATE_ADMIN__BIND_ADDRESS", address(admin))
        .env("RESTATE_INGRESS__BIND_ADDRESS", address(ingress))
        .env("RESTATE_DISABLE_TELEMETRY", "true")
        .env("RESTATE_LOG_FILTER", "warn");
    let mut server = bed.start(&command)?;
    server.wait_for(admin)?;
    server.wait_for(ingress)?;
    let registered = bed.runtime.block_on(register(admin, service_port));
    registered.map_err(|why| {
        let said = server.said();
        Failure::new(format!("the service is not registered: {why}; {said}"))
    })?;
    let mut started = Started::new(
        ingress,
        vec![server.pid(), service.pid()],
        (server, service),
    );
    started.alive.push(Box::new(data));
    (started.pay, started.slow) = ("/payments/pay", "/payments/slow");
    Ok(started)
}

/// Tells the server where the service is, as soon as it listens to that.
async fn register(admin: u16, service: u16) -> Result<(), Failure> {
    const TRIES: u32 = 50;
    let mut said = String::new();
    for _ in 0..TRIES {
        let body = format!(r#"{{"uri":"http://127.0.0.1:{service}"}}"#);
        let mut client = Client::connect(admin).await?;
        let answer = client.send(Post::to("/deployments"), body).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        said = String::from_utf8_lossy(&answer.body).into_owned();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(Failure::new(said))
}

pub(super) fn proxy_memory(bed: &Bed<'_>) -> Result<Started, Failure> {
    proxy(bed, None)
}

pub(super) fn proxy_redis(bed: &Bed<'_>) -> Result<Started, Failure> {
    Ok(proxy(bed, Some(bed.redis.url()))?.and(bed.redis_pid(), ()))
}

/// It passes on to addresses that it knows by name; what has no key it refuses.
fn proxy(bed: &Bed<'_>, redis: Option<String>) -> Result<Started, Failure> {
    let handler = ours::handler(bed)?;
    let service = format!("http://127.0.0.1:{}", handler.port);
    let folder = bed.kits.join(PROXY.name);
    let port = free_port()?;
    let mut command = Command::new(folder.join("bin/idempotent-proxy-server"));
    command
        .current_dir(&folder)
        .env("SERVER_ADDR", format!("127.0.0.1:{port}"))
        .env("URL_PAYMENTS", format!("{service}/payments"))
        .env("URL_SLOW", format!("{service}/slow"))
        // Also how long it keeps an answer.
        .env("REQUEST_TIMEOUT", "600000")
        .env("LOG_LEVEL", "error")
        .env_remove("REDIS_URL")
        .envs(redis.map(|url| ("REDIS_URL", url)));
    let mut process = bed.start(&command)?;
    process.wait_for(port)?;
    let started = Started {
        port,
        pay: "/URL_PAYMENTS",
        slow: "/URL_SLOW",
        ..handler
    };
    Ok(started.and([process.pid()], process))
}

pub(super) fn axum(bed: &Bed<'_>) -> Result<Started, Failure> {
    let program = bed.kits.join("target/release/peer-axum-idempotent");
    let (process, port) = bed.serve(Command::new(program))?;
    let mut started = Started::new(port, vec![process.pid()], process);
    started.session = Some("/session");
    Ok(started)
}

pub(super) fn actix(bed: &Bed<'_>) -> Result<Started, Failure> {
    let program = bed.kits.join("target/release/peer-actix-idempotent");
    let (process, port) = bed.serve(Command::new(program))?;
    let mut started = Started::new(port, vec![process.pid()], process);
    started.session = Some("/session");
    Ok(started.and(bed.redis_pid(), ()))
}

pub(super) fn express(bed: &Bed<'_>) -> Result<Started, Failure> {
    let mut command = NODE.command()?;
    command
        .arg("main.cjs")
        .current_dir(bed.kits.join(EXPRESS.name));
    let (process, port) = bed.serve(command)?;
    Ok(Started::new(port, vec![process.pid()], process))
}

pub(super) fn asgi(bed: &Bed<'_>) -> Result<Started, Failure> {
    python(bed, &ASGI)
}

pub(super) fn idemkit(bed: &Bed<'_>) -> Result<Started, Failure> {
    python(bed, &IDEMKIT)
}

pub(super) fn powertools(bed: &Bed<'_>) -> Result<Started, Failure> {
    python(bed, &POWERTOOLS)
}

fn python(bed: &Bed<'_>, kit: &Kit) -> Result<Started, Failure> {
    let folder = bed.kits.join(kit.name);
    let mut command = Command::new(folder.join("venv/bin/python"));
    command
        .args(["-W", "ignore", "main.py"])
        .current_dir(&folder);
    let (process, port) = bed.serve(command)?;
    let pids = vec![process.pid()];
    Ok(Started::new(port, pids, process).and(bed.redis_pid(), ()))
}
