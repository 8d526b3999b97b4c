use super::*;

fn normalised(path: &str) -> String {
    normal(path).unwrap().unwrap_or_else(|| path.to_owned())
}

#[test]
fn dot_segments_are_resolved_and_never_climb_above_the_root() {
    for (path, is) in [
        ("/", "/"),
        ("/.", "/"),
        ("/..", "/"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/../b", "/b"),
        ("/../../b", "/b"),
        ("/a//../b", "/a/b"),
        ("/a/%2e%2E/b", "/b"),
        ("/a/.%2e/b", "/b"),
        ("/a/...", "/a/..."),
        ("/a/.b", "/a/.b"),
        ("/a/b..", "/a/b.."),
    ] {
        assert_eq!(normalised(path), is, "{path}");
    }
}

#[test]
fn an_escape_has_one_spelling() {
    assert_eq!(normalised("/%41%7e%2d"), "/A~-");
    assert_eq!(normalised("/%2f%3a%c3%a9"), "/%2F%3A%C3%A9");
    assert_eq!(normalised("/é"), "/%C3%A9");
    assert_eq!(normalised("/%252e"), "/%252e");
    for bad in ["/%", "/%4", "/%4g", "/a%%41"] {
        assert_eq!(normal(bad), Err(BadPath::Escape), "{bad}");
    }
    assert_eq!(normal("/a%00b"), Err(BadPath::Nul));
}

#[test]
fn a_path_without_anything_special_is_not_copied() {
    for path in ["/", "/orders", "/a/b.c/d-e_f~g", "/a;b//c:@!$&'()*+,="] {
        assert_eq!(normal(path), Ok(None), "{path}");
    }
}

/// All paths of four pieces of what matters to a path.
fn every_path() -> impl Iterator<Item = String> {
    const PIECES: [&str; 10] = ["/", "a", ".", "%2e", "%2f", "%5C", "\\", ";", "%3b", "%25"];
    let count = PIECES.len();
    (0..count.pow(4)).map(move |mut number| {
        let mut path = "/".to_owned();
        for _ in 0..4 {
            path += PIECES[number % count];
            number /= count;
        }
        path
    })
}

#[test]
fn a_normal_form_is_its_own_normal_form_and_has_no_dot_segments() {
    for path in every_path() {
        let is = normalised(&path);

        assert_eq!(normalised(&is), is, "{path}");
        assert!(is.starts_with('/'), "{path}: {is}");
        assert!(
            !is.split('/').any(|it| it == "." || it == ".."),
            "{path}: {is}"
        );
    }
}

#[test]
fn no_reading_has_dot_segments_and_a_plain_path_has_no_other() {
    for path in every_path() {
        let is = normalised(&path);
        for other in other_readings(&is) {
            assert!(
                !other.split('/').any(|it| it == "." || it == ".."),
                "{path}: {other}"
            );
        }
    }
    for plain in [
        "/",
        "/orders/7",
        "/a:b@c/d,e",
        "/%C3%A9%20%25",
        "/.well-known",
    ] {
        assert_eq!(other_readings(plain).count(), 0, "{plain}");
    }
}

#[test]
fn a_path_is_read_in_every_combination_of_ways() {
    let readings: Vec<_> = other_readings("/a//..;/b%2F%3Ac").collect();

    for reading in [
        "/a//..;/b%2F:c",
        "/a//..;/b/%3Ac",
        "/a/b%2F%3Ac",
        "/a/..;/b%2F%3Ac",
        "/b%2F%3Ac",
        "/b/:c",
    ] {
        assert!(
            readings.iter().any(|it| it == reading),
            "{reading}: {readings:?}"
        );
    }
}

#[test]
fn a_pattern_is_brought_to_the_same_form() {
    let normal = |pattern: &str| normal_pattern(pattern).unwrap();

    assert_eq!(normal("/%6frders/{größe}"), "/orders/{größe}");
    assert_eq!(normal("/münze/{*rest}"), "/m%C3%BCnze/{*rest}");
    assert_eq!(normal("/a:b/{id}.json"), "/a:b/{id}.json");
    for bad in [
        "/a/../b", "/./a", "/a//b", "/a%2fb", "/a;b", "/a%3Ab", "/a\\b", "/a%",
    ] {
        assert!(normal_pattern(bad).is_err(), "{bad}");
    }
}
