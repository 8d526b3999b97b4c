use super::*;

#[test]
fn what_cargo_builds_is_not_in_the_folder_that_is_emptied() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let profile = |line: &'_ str| {
        let name = line.strip_prefix("[profile.")?.strip_suffix(']')?;
        Some(name.to_owned())
    };

    let profiles: Vec<String> = manifest.lines().filter_map(profile).collect();

    assert!(
        profiles.iter().any(|it| it == "dist"),
        "it is what is shipped"
    );
    for built_in in profiles
        .iter()
        .map(String::as_str)
        .chain(["debug", "release"])
    {
        assert!(!Path::new(FOLDER).ends_with(built_in), "{FOLDER}");
    }
}
