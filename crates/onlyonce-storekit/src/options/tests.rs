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
