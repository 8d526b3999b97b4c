use super::*;

fn pages(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect()
}

fn problem(path: &str, line: usize, what: &str) -> Problem {
    Problem {
        path: path.to_owned(),
        line,
        what: what.to_owned(),
    }
}

#[test]
fn links_to_pages_anchors_and_files_are_followed() {
    let pages = pages(&[
        (
            "README.md",
            "[a](docs/a.md#one-thing-and-another)\n[src](crates/x.rs)",
        ),
        (
            "docs/a.md",
            "# One thing, and another\n[back](../README.md) [here](#rule-1)\n<a id=\"rule-1\"></a>",
        ),
    ]);

    for (path, text) in &pages {
        let found = broken(path, links(text), &pages, |path| path == "crates/x.rs");
        assert_eq!(found, []);
    }
}

#[test]
fn a_link_that_leads_nowhere_is_named_by_line() {
    let pages = pages(&[(
        "docs/a.md",
        "# A\n\n[b](b.md)\n[c](#c)\n[a](../docs/a.md#b)",
    )]);

    let found = broken("docs/a.md", links(&pages["docs/a.md"]), &pages, |_| false);

    let expected = [
        problem("docs/a.md", 3, "there is no docs/b.md"),
        problem("docs/a.md", 4, "docs/a.md has no #c"),
        problem("docs/a.md", 5, "docs/a.md has no #b"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn web_addresses_and_fenced_blocks_are_left_alone() {
    let text = "[x](https://example.org/x.md) [m](mailto:a@example.org)\n```text\n[y](y.md)\n```";

    assert_eq!(links(text), []);
}

#[test]
fn a_citation_in_a_comment_is_read_and_code_is_not() {
    let text = "/// Rule 3 (docs/protocol.md#rule-3).\nlet a = \"docs/chaos.md\";\n//! See docs/stores.md.";

    let expected = [
        (1, "docs/protocol.md#rule-3".to_owned()),
        (3, "docs/stores.md".to_owned()),
    ];
    assert_eq!(citations(text), expected);
}

#[test]
fn a_page_that_is_not_in_the_book_is_named() {
    let pages = pages(&[
        (SUMMARY, "- [A](docs/a.md)"),
        ("docs/a.md", ""),
        ("docs/b.md", ""),
        ("ops/runbooks/c.md", ""),
        ("crates/x/README.md", ""),
    ]);

    let found = unlisted(&pages);

    let what = format!("is not in {SUMMARY}");
    let expected = [
        problem("docs/b.md", 1, &what),
        problem("ops/runbooks/c.md", 1, &what),
    ];
    assert_eq!(found, expected);
}
