//! RFC 9651, as the HTTP working group tests it: <https://github.com/httpwg/structured-field-tests>.

use super::*;

#[derive(serde::Deserialize)]
struct Vector {
    name: String,
    raw: Vec<String>,
    #[serde(default)]
    must_fail: bool,
    expected: Option<(String, serde_json::Value)>,
}

const FILES: [&str; 2] = [
    include_str!("../../../tests/vectors/structured-fields/string.json"),
    include_str!("../../../tests/vectors/structured-fields/string-generated.json"),
];

fn vectors() -> Vec<Vector> {
    let parse = |text| serde_json::from_str::<Vec<Vector>>(text).unwrap();
    FILES.into_iter().flat_map(parse).collect()
}

fn parse_vector(vector: &Vector) -> Result<String, KeyError> {
    let rule = KeyRule {
        bytes_max: 1 << 20,
        charset: Charset::Text,
        random: false,
    };
    let key = Key::parse(vector.raw.join(", ").as_bytes(), &rule)?;
    Ok(key.expose().to_owned())
}

#[test]
fn a_string_is_read_as_its_text() {
    let mut read = 0;

    for vector in vectors() {
        let Some((expected, _)) = &vector.expected else {
            continue;
        };
        let name = &vector.name;
        let found = parse_vector(&vector);
        if expected.trim().is_empty() {
            assert_eq!(found, Err(KeyError::Empty), "{name}");
        } else {
            assert_eq!(found.as_ref(), Ok(expected), "{name}");
            read += 1;
        }
    }

    assert!(read > 90, "only {read} vectors hold a key");
}

#[test]
fn a_broken_string_is_refused() {
    let mut refused = 0;

    for vector in vectors() {
        if vector.must_fail && vector.raw[0].starts_with('"') {
            let name = &vector.name;
            assert_eq!(parse_vector(&vector), Err(KeyError::BadQuoting), "{name}");
            refused += 1;
        }
    }

    assert!(refused > 90, "only {refused} vectors must fail");
}

#[test]
fn every_vector_says_what_must_happen() {
    for vector in vectors() {
        assert!(
            vector.must_fail != vector.expected.is_some(),
            "{}",
            vector.name
        );
    }
}
