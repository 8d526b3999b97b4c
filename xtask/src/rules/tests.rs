use super::*;

#[test]
fn a_profile_in_code_is_found_by_line() {
    let text = "fn f(p: Profile) {\n    if p == Profile::Stripe {}\n    match p { profile::Profile::Ietf => {} }\n}";

    assert_eq!(profile_lines(text), [2, 3]);
}

#[test]
fn a_contract_built_in_code_is_found_by_line() {
    let text =
        "let http = HttpRules {\n};\nlet row = RefusalRow { reason };\npub struct HttpRules {";

    assert_eq!(profile_lines(text), [1, 3]);
}

#[test]
fn what_returns_a_part_of_a_contract_or_is_a_method_of_it_builds_none() {
    let text = "fn row(&self) -> &RefusalRow {\n    fn http() -> HttpRules {\nimpl HttpRules {\n";

    assert_eq!(profile_lines(text), [0; 0]);
}

#[test]
fn a_contract_that_is_read_names_no_profile() {
    assert_eq!(profile_lines("Profile::from_toml(&text)"), [0; 0]);
}

#[test]
fn comments_and_other_words_are_not_branches() {
    let text = "//! `Profile::Stripe`\n    /// Profile::Ietf\n    // Profile::Broker\nUserProfile::new();\nuse crate::Profile;";

    assert_eq!(profile_lines(text), [0; 0]);
}

#[test]
fn only_presets_tests_docs_examples_and_benches_may_name_profiles() {
    let may = [
        "crates/onlyonce-core/src/profile.rs",
        "crates/onlyonce-core/src/profile/table.rs",
        "crates/onlyonce-core/src/engine/tests.rs",
        "crates/onlyonce-tower/tests/it/profiles.rs",
        "crates/onlyonce-tower/benches/layer.rs",
        "crates/onlyonce-testkit/examples/sim.rs",
        "examples/src/bin/axum.rs",
    ];
    let may_not = [
        "crates/onlyonce-core/src/engine.rs",
        "crates/onlyonce-tower/src/profile.rs",
        "crates/onlyonce-core/src/profiles.rs",
        "crates/onlyonce-testkit/src/lib.rs",
    ];

    assert!(may.iter().all(|path| may_name_profiles(path)));
    assert!(!may_not.iter().any(|path| may_name_profiles(path)));
}
