use super::*;

#[test]
fn hidden_lines_do_not_count() {
    let shown = "# Guide\n```rust\nlet a = 1;\n```\n```toml\n[a]\n```";
    let tested = "```rust\n# fn main() {\n\nlet a = 1;\n#\n# }\n```";

    assert_eq!(difference(shown, tested), None);
}

#[test]
fn a_line_that_differs_is_named() {
    let shown = "```rust\nlet a = 1;\n```\n```rust\nlet b = 1;\n```";
    let tested = "```rust\nlet a = 1;\n```\n```rust\nlet b = 2;\n```";

    let found = difference(shown, tested).unwrap();

    let expected = "block 2 of Rust shows `let b = 1;` where `let b = 2;` is tested";
    assert_eq!(found, expected);
}

#[test]
fn a_block_that_is_not_tested_is_noticed() {
    let found = difference("```rust\nlet a = 1;\n```", "").unwrap();

    assert_eq!(found, "1 blocks of Rust are shown, 0 tested");
}

#[test]
fn a_line_too_many_is_noticed() {
    let shown = "```rust\nlet a = 1;\nlet b = 2;\n```";

    let found = difference(shown, "```rust\nlet a = 1;\n```").unwrap();

    assert!(found.starts_with("block 1 of Rust"), "{found}");
}
