//! `onlyonce init`: the file it writes holds, is private, and takes no other file's place. And what
//! a gateway says when it starts on it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use onlyonce_gateway::{Settings, config};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::program::{on_a_terminal, onlyonce, run, run_with};

const UPSTREAM: &str = "--upstream=http://127.0.0.1:1";

fn at(folder: &TempDir) -> String {
    folder.path().join("onlyonce.toml").display().to_string()
}

fn mode(path: &str) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn the_file_holds_and_only_its_owner_can_read_it() {
    let folder = TempDir::new().unwrap();
    let file = at(&folder);
    let store = "--store=redis://:pa\"ss@127.0.0.1:6379";

    let (code, _, err) = run(&["init", UPSTREAM, store, "--key=required", "-o", &file]).await;

    assert_eq!(code, 0, "{err}");
    assert_eq!(mode(&file), 0o600);
    let config = config::load(Some(Path::new(&file)), [], &[]).unwrap();
    assert_eq!(config.upstream.as_deref(), Some("http://127.0.0.1:1"));
    assert_eq!(config.store_url(), "redis://:pa\"ss@127.0.0.1:6379");
    assert!(err.contains("note: the service at 127.0.0.1:1"), "{err}");
    assert!(!err.contains("pa\"ss"), "{err}");
}

#[tokio::test]
async fn what_is_commented_out_in_the_file_holds_too() {
    let (code, text, _) = run(&["init", UPSTREAM, "-o", "-"]).await;
    assert_eq!(code, 0);
    let routes = text.split_once("# [[route]]").unwrap().1;
    let routes = routes.split_once("# What is written").unwrap().0;
    let routes: String = routes
        .lines()
        .map(|line| line.trim_start_matches("# "))
        .collect::<Vec<_>>()
        .join("\n");
    let routes = routes.replace('#', "\n#");
    let head = text.replace("# ttl =", "ttl =").replace("# key =", "key =");
    let whole = format!("{head}\n[[route]]\n{routes}\n[log]\nlevel = \"warn\"\n");

    let config = config::read("onlyonce.toml", &whole);

    assert_eq!(config.unwrap().route.len(), 2, "{whole}");
    for scope in text
        .lines()
        .filter_map(|line| line.strip_prefix("# scope = "))
    {
        let jwt = "[jwt]\nalgorithm = \"HS256\"\nkey_file = \"key\"\n";
        let jwt = if scope.contains("jwt") { jwt } else { "" };
        let settings = format!("upstream = \"http://a\"\nscope = {scope}\n{jwt}");
        assert!(config::read("scope.toml", &settings).is_ok(), "{settings}");
    }
}

#[tokio::test]
async fn a_file_that_is_there_stays() {
    let folder = TempDir::new().unwrap();
    let file = at(&folder);
    fs::write(&file, "mine").unwrap();

    let (refused, _, err) = run(&["init", UPSTREAM, "-o", &file]).await;
    let kept = fs::read_to_string(&file).unwrap();
    let (forced, _, _) = run(&["init", UPSTREAM, "-o", &file, "--force"]).await;
    let (again, _, _) = run(&["init", UPSTREAM, "-o", &file, "--force"]).await;

    assert_eq!((refused, kept.as_str()), (2, "mine"));
    assert!(err.contains("is there already"), "{err}");
    assert_eq!((forced, again), (0, 2));
    assert_eq!(fs::read_to_string(format!("{file}.old")).unwrap(), "mine");
}

#[tokio::test]
async fn settings_that_do_not_hold_are_not_written() {
    let folder = TempDir::new().unwrap();
    let file = at(&folder);

    for wrong in [
        "--upstream=nonsense",
        "--profile=unheard-of",
        "--store=unheard-of:x",
        "--listen=nowhere",
        "--admin=0.0.0.0:9090",
    ] {
        let (code, _, err) = run(&["init", UPSTREAM, wrong, "-o", &file]).await;
        assert_eq!(code, 2, "{wrong}: {err}");
        assert!(!Path::new(&file).exists(), "{wrong}");
    }
}

#[tokio::test]
async fn without_flags_it_asks() {
    let folder = TempDir::new().unwrap();
    let file = at(&folder);
    let answers = "http://127.0.0.1:1\nmemory:\nyes\n";

    let (code, _, err) = run_with(&["init", "-o", &file], answers).await;
    let (silent, _, _) = run_with(&["init", "-o", &at(&TempDir::new().unwrap())], "").await;

    assert_eq!((code, silent), (0, 2), "{err}");
    let config = config::load(Some(Path::new(&file)), [], &[]).unwrap();
    assert_eq!(config.store_url(), "memory:");
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .contains("\nkey = \"required\"")
    );
}

#[tokio::test]
async fn a_folder_that_hands_its_group_down_lets_that_group_read() {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o2750)).unwrap();
    let file = at(&folder);

    let (code, _, _) = run(&["init", UPSTREAM, "-o", &file]).await;

    assert_eq!((code, mode(&file)), (0, 0o640));
}

#[tokio::test]
async fn a_start_says_once_what_matters_without_the_stores_password() {
    let folder = TempDir::new().unwrap();
    let file = at(&folder);
    run(&[
        "init",
        UPSTREAM,
        "--store=memory:?records_max=9",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "-o",
        &file,
    ])
    .await;
    let mut gateway = onlyonce(&["gateway", "--config", &file]).spawn().unwrap();
    let mut lines = BufReader::new(gateway.stderr.take().unwrap()).lines();
    let mut next = async || -> Value {
        let line = lines.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    };

    let started = next().await;
    let warnings = [next().await, next().await];
    let id = gateway.id().unwrap().to_string();
    let hang_up = tokio::process::Command::new("kill")
        .args(["-HUP", &id])
        .status();
    assert!(hang_up.await.unwrap().success());
    let reloaded = next().await;
    let terminate = tokio::process::Command::new("kill")
        .args(["-TERM", &id])
        .status();
    assert!(terminate.await.unwrap().success());
    let stopping = next().await;

    assert!(
        started["listen"]
            .as_str()
            .unwrap()
            .starts_with("http://127.0.0.1:")
    );
    assert_eq!(started["store"], "memory:");
    assert!(
        started["store_survives"]
            .as_str()
            .unwrap()
            .starts_with("nothing")
    );
    assert_eq!(
        (&started["profile"], &started["config"]),
        (&"standard".into(), &file.into())
    );
    let settings: Vec<_> = warnings
        .iter()
        .map(|it| it["setting"].as_str().unwrap())
        .collect();
    assert_eq!(settings, ["scope", "store"]);
    assert_eq!(reloaded["message"], "settings read again");
    // Nothing between: a warning that was given is not repeated.
    assert!(
        stopping["message"]
            .as_str()
            .unwrap()
            .starts_with("stopping"),
        "{stopping}"
    );
    assert!(gateway.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_start_on_a_terminal_says_the_same_in_sentences() {
    let folder = TempDir::new().unwrap();
    let file = at(&folder);
    run(&[
        "init",
        UPSTREAM,
        "--store=memory:",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "-o",
        &file,
    ])
    .await;
    let mut gateway = on_a_terminal(&["gateway", "--config", &file])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    let mut told = Vec::new();

    while told.len() < 5 {
        let line = lines.next_line().await.unwrap().unwrap();
        told.push(line.trim_end().to_owned());
    }

    assert!(
        told[0].starts_with("onlyonce listens on http://127.0.0.1:"),
        "{told:?}"
    );
    assert!(
        told[0].contains(", operators on http://127.0.0.1:"),
        "{told:?}"
    );
    assert_eq!(
        told[1],
        "store      memory: (survives: nothing; a restart forgets every answer)"
    );
    assert_eq!(told[2], format!("profile    standard, from {file}"));
    let warnings = told[3..].iter().filter(|it| it.starts_with("warning: "));
    assert_eq!(warnings.count(), 2, "{told:?}");
    assert!(!told.concat().contains('{'), "{told:?}");
    let id = gateway.id().unwrap().to_string();
    let ended = tokio::process::Command::new("kill")
        .args(["-TERM", &id])
        .status();
    assert!(ended.await.unwrap().success());
    gateway.wait().await.unwrap();
}

#[tokio::test]
async fn a_file_that_only_observes_says_so_and_another_says_how() {
    let folder = TempDir::new().unwrap();
    let (observing, enforcing) = (at(&folder), format!("{}.2", at(&folder)));

    let (code, _, told) = run(&["init", UPSTREAM, "--mode=observe", "-o", &observing]).await;
    assert_eq!(code, 0, "{told}");
    let (code, _, told) = run(&["init", UPSTREAM, "-o", &enforcing]).await;
    assert_eq!(code, 0, "{told}");

    let observed = |file: &str| {
        let settings = Settings::load(Some(Path::new(file)), [], &[]).unwrap();
        settings.observed()
    };
    assert_eq!(observed(&observing).len(), 1);
    assert!(observed(&enforcing).is_empty());
    let text = fs::read_to_string(&enforcing).unwrap();
    assert!(text.contains("\n# mode = \"observe\"\n"), "{text}");
}

#[tokio::test]
async fn a_service_manager_learns_when_it_is_ready_reloads_and_stops() {
    let folder = TempDir::new().unwrap();
    let file = at(&folder);
    run(&[
        "init",
        UPSTREAM,
        "--store=memory:",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "-o",
        &file,
    ])
    .await;
    let socket = folder.path().join("notify");
    let manager = tokio::net::UnixDatagram::bind(&socket).unwrap();
    let mut gateway = onlyonce(&["gateway", "--config", &file])
        .env("NOTIFY_SOCKET", &socket)
        .spawn()
        .unwrap();
    let id = gateway.id().unwrap().to_string();
    let told = async || {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let send = async |signal: &str| {
        let sent = tokio::process::Command::new("kill")
            .args([signal, &id])
            .status();
        assert!(sent.await.unwrap().success());
    };

    assert_eq!(told().await.trim(), "READY=1");
    send("-HUP").await;
    let reloading = told().await;
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(told().await.trim(), "READY=1");
    send("-TERM").await;
    assert_eq!(told().await.trim(), "STOPPING=1");
    assert!(gateway.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_reload_of_a_service_fails_if_its_settings_are_not_taken() {
    let folder = TempDir::new().unwrap();
    let file = at(&folder);
    run(&[
        "init",
        UPSTREAM,
        "--store=memory:",
        "--listen=127.0.0.1:0",
        "--admin=127.0.0.1:0",
        "-o",
        &file,
    ])
    .await;
    let good = fs::read_to_string(&file).unwrap();
    let place = folder.path().to_str().unwrap().to_owned();
    // As a gateway that was killed leaves it.
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("reload.sock")).unwrap());
    let mut gateway = onlyonce(&["gateway", "--config", &file])
        .env("RUNTIME_DIRECTORY", &place)
        .spawn()
        .unwrap();
    let reload = async || {
        let mut asked = onlyonce(&["gateway", "reload"]);
        let asked = asked
            .env("RUNTIME_DIRECTORY", &place)
            .output()
            .await
            .unwrap();
        let told = String::from_utf8(asked.stderr).unwrap();
        (asked.status.code(), told)
    };
    let mut first = reload().await;
    for _ in 0..500 {
        if first.0 == Some(0) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        first = reload().await;
    }
    assert_eq!(first, (Some(0), "settings read again\n".to_owned()));

    for (settings, why) in [
        (good.replace("127.0.0.1:0", "127.0.0.1:1"), "restart it"),
        (format!("{good}\nnonsense = true\n"), "nonsense"),
    ] {
        assert_ne!(settings, good);
        fs::write(&file, settings).unwrap();
        let (code, told) = reload().await;
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains("the old settings stay"), "{told}");
        assert!(told.contains(why), "{told}");
    }
    fs::write(&file, &good).unwrap();
    assert_eq!(reload().await.0, Some(0), "it goes on as before");
    gateway.kill().await.unwrap();
    let (code, told) = reload().await;
    assert_eq!(code, Some(2));
    assert!(told.contains("no gateway answers at"), "{told}");
}

#[test]
fn the_unit_reloads_by_asking_the_gateway_and_hears_its_answer() {
    let unit = include_str!("../../../../packaging/onlyonce.service");

    let reload = unit.lines().filter(|it| it.starts_with("ExecReload="));
    let reload: Vec<_> = reload.collect();
    assert_eq!(reload, ["ExecReload=/usr/bin/onlyonce gateway reload"]);
    assert!(unit.contains("\nRuntimeDirectory=onlyonce\n"), "{unit}");
}
