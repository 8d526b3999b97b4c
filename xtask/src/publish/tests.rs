use super::*;

fn package(name: &str, needs: &[&str]) -> Package {
    let dependencies: Vec<_> = needs.iter().map(|name| member(name)).collect();
    let value = serde_json::json!({
        "id": name, "name": name, "features": {}, "publish": null, "dependencies": dependencies,
    });
    let mut package = crate::cargo::package(&value).expect("it has every field");
    package.unstated.clear();
    package
}

fn member(name: &str) -> serde_json::Value {
    serde_json::json!({"name": name, "kind": null, "path": "somewhere"})
}

#[test]
fn a_complete_package_has_no_problems() {
    let core = package("core", &[]);
    let front = package("front", &["core"]);

    let found = problems(&front, &[], &FILES.join("\n"));

    assert_eq!(found, [""; 0]);
    assert_eq!(
        problems(&core, &[&package("bench", &[])], &FILES.join("\n")),
        [""; 0]
    );
}

#[test]
fn a_crate_that_needs_an_unpublished_one_is_named() {
    let demo = package("demo", &[]);
    let cli = package("cli", &["core", "demo"]);

    let found = problems(&cli, &[&demo], &FILES.join("\n"));

    assert_eq!(found, ["needs demo, which is not published"]);
}

#[test]
fn a_missing_file_or_field_is_named() {
    let mut core = package("core", &[]);
    core.unstated = vec!["keywords"];

    let found = problems(&core, &[], "Cargo.toml\nLICENSE-MIT\nREADME.md\nsrc/lib.rs");

    let expected = [
        "Cargo.toml does not state keywords",
        "its package has no LICENSE-APACHE",
    ];
    assert_eq!(found, expected);
}
