use super::*;

#[test]
fn what_cargo_says_of_our_own_package_is_not_handed_on() {
    let command = cargo(&["--version"]);

    let removed: Vec<_> = command
        .get_envs()
        .filter(|(_, value)| value.is_none())
        .filter_map(|(name, _)| name.to_str())
        .collect();
    for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        assert!(removed.contains(&name), "{name}: {removed:?}");
    }
    assert!(!removed.contains(&"CARGO_HOME"), "{removed:?}");
}

#[test]
fn a_package_says_what_it_lacks_and_needs() {
    let value = serde_json::json!({
        "id": "a", "name": "a", "features": {}, "publish": null,
        "description": "A", "license": "MIT", "repository": "r", "readme": "README.md",
        "rust_version": "1.95", "keywords": [], "categories": ["c"], "metadata": null,
        "dependencies": [
            {"name": "b", "kind": null, "path": "/b"},
            {"name": "tests", "kind": "dev", "path": "/tests"},
            {"name": "serde", "kind": null},
        ],
    });

    let package = package(&value).unwrap();

    assert!(package.is_published);
    assert_eq!(package.unstated, ["keywords", "metadata.docs.rs"]);
    assert_eq!(package.needs, ["b"]);
}

#[test]
fn a_package_that_is_not_for_a_registry_is_not_published() {
    let value = serde_json::json!({
        "id": "a", "name": "a", "features": {}, "publish": [], "dependencies": [],
    });

    assert!(!package(&value).unwrap().is_published);
}
