use std::collections::BTreeSet;

use serde_json::json;

use super::read;

fn list(format: &str, names: &[&str]) -> String {
    let component = |name: &&str| json!({"name": name, "version": "1.0.0", "bom-ref": name});
    let components: Vec<_> = names.iter().map(component).collect();
    json!({
        "bomFormat": format,
        "metadata": {
            "authors": [{"name": "somebody"}],
            "component": {"components": [{"bom-ref": "onlyonce-cli"}]},
        },
        "components": components,
        "dependencies": [
            {"ref": "winapi", "dependsOn": []},
            {"ref": "onlyonce-cli", "dependsOn": ["winapi", "tokio", "hyper"]},
        ],
    })
    .to_string()
}

fn built_from(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| format!("{name} 1.0.0")).collect()
}

#[test]
fn a_list_that_is_not_of_this_program_is_refused() {
    let all = ["onlyonce-core", "tokio", "hyper", "http"];
    let built_from = built_from(&all);

    assert!(read(&list("CycloneDX", &all), &built_from).is_ok());
    for wrong in [
        String::new(),
        list("SPDX", &all),
        list("CycloneDX", &all[1..]),
        list("CycloneDX", &[]),
    ] {
        assert!(read(&wrong, &built_from).is_err(), "{wrong}");
    }
}

#[test]
fn what_only_other_systems_need_is_left_out_and_the_rest_is_in_order() {
    let listed = ["winapi", "tokio", "onlyonce-core", "hyper"];
    let built_from = built_from(&listed[1..]);

    let read = read(&list("CycloneDX", &listed), &built_from);
    let read = read.unwrap_or_else(|failure| panic!("{}", failure.0));

    let names: Vec<_> = read["components"].as_array().unwrap().iter().collect();
    let names: Vec<_> = names
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["hyper", "onlyonce-core", "tokio"]);
    let on = &read["dependencies"];
    assert_eq!(
        *on,
        json!([{"ref": "onlyonce-cli", "dependsOn": ["hyper", "tokio"]}])
    );
    assert!(read["metadata"]["authors"].is_null());
}
