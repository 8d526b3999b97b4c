use super::*;

#[test]
fn an_option_that_is_nearly_right_is_named() {
    let mut options = Options::of("x:?wait_replica=1").unwrap();
    assert_eq!(options.take("wait_replicas"), None);

    let told = options.finish().unwrap_err().to_string();

    assert!(told.contains("did you mean `wait_replicas`?"), "{told}");
}

#[test]
fn an_option_of_the_wrong_kind_is_told_with_the_right_one() {
    let mut options = Options::of("x:?wait_replicas=many").unwrap();

    let told = options
        .parse::<u32>("wait_replicas", "a number")
        .unwrap_err();

    let told = told.to_string();
    assert!(
        told.contains("`wait_replicas`") && told.contains("not a number"),
        "{told}"
    );
}

#[test]
fn an_option_given_twice_is_an_error() {
    assert!(Options::of("x:?a=1&a=2").is_err());
}

#[test]
fn what_goes_around_a_store_is_taken_off_its_url() {
    let url = "postgres://u:p@h/db?table=t&sealed=k%26.ring&cache=64MiB&timeout_ms=9";

    let (rest, mut around) = Options::split_off(url, &AROUND).unwrap();

    assert_eq!(rest, "postgres://u:p@h/db?table=t&timeout_ms=9");
    assert_eq!(around.take("sealed").as_deref(), Some("k&.ring"));
    assert_eq!(around.bytes("cache").unwrap(), Some(64 << 20));
    assert_eq!(around.take("tier"), None);
    for (url, left) in [("memory:", "memory:"), ("memory:?cache=1", "memory:")] {
        assert_eq!(Options::split_off(url, &AROUND).unwrap().0, left);
    }
    assert!(Options::split_off("redis://h?cache=1&cache=2", &AROUND).is_err());
}

#[test]
fn a_number_of_bytes_may_have_a_unit() {
    for (text, bytes) in [
        ("7", 7),
        ("3KiB", 3 << 10),
        ("2MiB", 2 << 20),
        ("1GiB", 1 << 30),
    ] {
        let mut options = Options::of(&format!("x:?cache={text}")).unwrap();
        assert_eq!(options.bytes("cache").unwrap(), Some(bytes), "{text}");
    }
    for text in ["", "much", "64MB", "-1", "99999999999GiB"] {
        let mut options = Options::of(&format!("x:?cache={text}")).unwrap();
        let told = options.bytes("cache").unwrap_err().to_string();
        assert!(told.contains("such as 64MiB"), "{told}");
    }
}
