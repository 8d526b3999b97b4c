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
