//! `onlyonce config check` finds what a start would stumble over, all of it, by line.

use std::fs;

use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::program::{RUN_MAX, onlyonce, run};

fn written(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("onlyonce.toml"), text).unwrap();
    let path = folder.path().join("onlyonce.toml");
    (folder, path.display().to_string())
}

#[tokio::test]
async fn config_check_names_everything_that_is_wrong_at_once() {
    let (_folder, path) = written(
        "upstream = \"http://127.0.0.1:3000\"\n\
         store = \"reddis://user:s3cret@127.0.0.1\"\n\
         ttl = 86400\n\
         admin_token_file = \"/nowhere/token\"\n\
         [tls]\n\
         cert = \"/nowhere/cert.pem\"\n\
         key = \"/nowhere/key.pem\"\n\
         [rules]\n\
         lease = \"0s\"\n\
         [[route]]\n\
         match = \"POST /pay\"\n\
         [[route]]\n\
         match = \"POST /pay\"\n",
    );

    let (code, _, told) = run(&["config", "check", &path]).await;

    assert_eq!(code, 1, "{told}");
    let lines: Vec<&str> = told.lines().collect();
    for (line, why) in [
        (2, "did you mean redis:?"),
        (3, "`86400` has no unit"),
        (4, "/nowhere/token"),
        (6, "/nowhere/cert.pem"),
        (7, "/nowhere/key.pem"),
        (9, "`0s` is too short"),
        (13, "never reached"),
    ] {
        let place = format!("{path}:{line}: ");
        let is_told = lines
            .iter()
            .any(|it| it.starts_with(&place) && it.contains(why));
        assert!(is_told, "{line} {why}: {told}");
    }
    assert_eq!(lines.len(), 7, "{told}");
    assert!(!told.contains("s3cret"), "{told}");
}

#[tokio::test]
async fn a_gateway_does_not_start_on_settings_that_make_no_sense() {
    let (folder, path) = written(
        "upstream = \"http://127.0.0.1:3000\"\n\
         listen = \"127.0.0.1:0\"\n\
         admin = \"127.0.0.1:0\"\n\
         [rules]\n\
         lease = \"0s\"\n",
    );

    let mut program = onlyonce(&["gateway", "--config", &path]);
    let ended = timeout(RUN_MAX, program.current_dir(folder.path()).output());

    let output = ended.await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("onlyonce.toml:5: lease: `0s` is too short"),
        "{told}"
    );
    assert!(!folder.path().join("onlyonce-data").exists());
}
