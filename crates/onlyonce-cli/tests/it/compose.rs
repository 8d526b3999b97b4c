//! packaging/compose, as far as it can be checked without a container engine: the files it mounts, the
//! settings of its gateway, the configuration of its Prometheus.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tokio::process::Command;
use yaml_rust2::{Yaml, YamlLoader};

use crate::support::program::onlyonce;

const TOKEN: &str = "/run/secrets/admin-token";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/compose")
}

fn read(name: &str) -> Yaml {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    YamlLoader::load_from_str(&text).unwrap().remove(0)
}

fn services() -> BTreeMap<String, Yaml> {
    let compose = read("compose.yaml");
    let services = compose["services"].as_hash().unwrap().iter();
    services
        .map(|(name, service)| (name.as_str().unwrap().to_owned(), service.clone()))
        .collect()
}

fn names(list: &Yaml) -> Vec<String> {
    let list = list.as_vec().into_iter().flatten();
    list.map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// What `${NAME:-value}` is without a variable of that name.
fn resolved(value: &str) -> String {
    let inner = value.strip_prefix("${").and_then(|it| it.strip_suffix('}'));
    match inner.and_then(|it| it.split_once(":-")) {
        Some((_, usual)) => usual.to_owned(),
        None => value.to_owned(),
    }
}

/// A token where the containers have one.
fn token(folder: &Path) -> String {
    let path = folder.join("admin-token");
    fs::write(&path, "0123456789abcdef0123456789abcdef").unwrap();
    path.display().to_string()
}

#[test]
fn every_file_that_is_mounted_exists_and_every_name_is_declared() {
    let compose = read("compose.yaml");
    for (name, service) in services() {
        for volume in names(&service["volumes"]) {
            let (from, _) = volume.split_once(':').unwrap();
            if from.starts_with('.') {
                assert!(folder().join(from).is_file(), "{name}: {from}");
            } else {
                assert!(!compose["volumes"][from].is_badvalue(), "{name}: {from}");
            }
        }
        for secret in names(&service["secrets"]) {
            assert!(
                !compose["secrets"][&*secret].is_badvalue(),
                "{name}: {secret}"
            );
        }
        for (needed, _) in service["depends_on"].as_hash().into_iter().flatten() {
            let needed = needed.as_str().unwrap();
            assert!(services().contains_key(needed), "{name}: {needed}");
        }
        for port in names(&service["ports"]) {
            assert!(
                port.starts_with("127.0.0.1:"),
                "{name} is open to others: {port}"
            );
        }
    }
}

#[tokio::test]
async fn the_gateway_is_of_this_version_and_its_settings_hold() {
    let scratch = tempfile::tempdir().unwrap();
    let gateway = services().remove("gateway").unwrap();
    let image = format!("localhost/onlyonce:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(gateway["image"].as_str(), Some(&*image));
    let file = scratch.path().join("empty.toml");
    fs::write(&file, "").unwrap();

    let mut check = onlyonce(&["config", "check", "--env", file.to_str().unwrap()]);
    for (name, value) in gateway["environment"].as_hash().unwrap() {
        let value = resolved(value.as_str().unwrap()).replace(TOKEN, &token(scratch.path()));
        check.env(name.as_str().unwrap(), value);
    }
    let output = check.output().await.unwrap();

    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}

#[test]
fn operators_reach_the_console_from_this_machine_and_need_the_token() {
    let gateway = services().remove("gateway").unwrap();
    let admin = gateway["environment"]["ONLYONCE_ADMIN"].as_str().unwrap();
    let (_, port) = admin.split_once(':').unwrap();

    let published = names(&gateway["ports"]);

    let loopback = format!("127.0.0.1:{port}:{port}");
    assert!(published.contains(&loopback), "{published:?}");
    let token = gateway["environment"]["ONLYONCE_ADMIN_TOKEN_FILE"].as_str();
    assert_eq!(token, Some(TOKEN));
}

#[tokio::test]
async fn the_image_has_its_settings_in_a_file_and_a_mounted_one_has_the_last_word() {
    let image = include_str!("../../../../xtask/src/dist/image.rs");
    let own = folder().join("../image.toml");
    assert!(image.contains("--env ONLYONCE_CONFIG=/etc/onlyonce/onlyonce.toml"));
    let set: Vec<_> = image.matches("--env ").collect();
    assert_eq!(set.len(), 1, "a variable goes before a mounted file");
    let text = fs::read_to_string(&own).unwrap();
    assert!(text.contains("\nlisten = \"0.0.0.0:8080\"\n"), "{text}");

    let mut check = onlyonce(&["config", "check", "--env", own.to_str().unwrap()]);
    let output = check
        .env("ONLYONCE_UPSTREAM", "http://127.0.0.1:3000")
        .output()
        .await
        .unwrap();

    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}

#[tokio::test]
async fn prometheus_takes_its_configuration_and_scrapes_the_gateway() {
    let scratch = tempfile::tempdir().unwrap();
    let services = services();
    let prometheus = read("prometheus.yml");
    let job = &prometheus["scrape_configs"][0];
    let target = job["static_configs"][0]["targets"][0].as_str().unwrap();
    let (host, port) = target.split_once(':').unwrap();
    let admin = services[host]["environment"]["ONLYONCE_ADMIN"]
        .as_str()
        .unwrap();
    assert_eq!(admin, format!("0.0.0.0:{port}"));
    assert_eq!(
        job["authorization"]["credentials_file"].as_str(),
        Some(TOKEN)
    );
    assert_eq!(names(&services["prometheus"]["secrets"]), ["admin-token"]);

    // What is mounted in the container lies elsewhere here.
    let rules = folder().join("../../ops/prometheus/alerts.yml");
    let text = fs::read_to_string(folder().join("prometheus.yml")).unwrap();
    let text = text.replace("/etc/prometheus/alerts.yml", &rules.display().to_string());
    let file = scratch.path().join("prometheus.yml");
    fs::write(&file, text.replace(TOKEN, &token(scratch.path()))).unwrap();
    let mut promtool = Command::new("promtool");
    let output = promtool.args(["check", "config"]).arg(&file).output().await;

    let output = output.expect("promtool is in the Debian package prometheus");
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("13 rules found"), "{told}");
}

#[test]
fn grafana_finds_the_dashboard_and_prometheus() {
    let services = services();
    let provider = &read("grafana/dashboards.yml")["providers"][0];
    let place = provider["options"]["path"].as_str().unwrap();
    let mounted = names(&services["grafana"]["volumes"]);
    let dashboard = format!("../../ops/grafana/onlyonce.json:{place}/onlyonce.json:ro");

    assert!(mounted.contains(&dashboard), "{mounted:?}");
    let source = &read("grafana/datasource.yml")["datasources"][0];
    assert_eq!(source["url"].as_str(), Some("http://prometheus:9090"));
    assert!(services.contains_key("prometheus"));
}
