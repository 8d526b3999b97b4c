use super::read;

fn list(format: &str, names: &[&str]) -> String {
    let components = names.iter().map(|name| format!("{{\"name\":\"{name}\"}}"));
    let components = components.collect::<Vec<_>>().join(",");
    format!("{{\"bomFormat\":\"{format}\",\"components\":[{components}]}}")
}

#[test]
fn a_list_that_is_not_of_this_program_is_refused() {
    let all = ["onlyonce-core", "tokio", "hyper", "http"];

    assert!(read(&list("CycloneDX", &all)).is_ok());
    for wrong in [
        String::new(),
        list("SPDX", &all),
        list("CycloneDX", &all[1..]),
        list("CycloneDX", &[]),
    ] {
        assert!(read(&wrong).is_err(), "{wrong}");
    }
}
