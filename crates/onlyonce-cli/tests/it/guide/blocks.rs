//! The fenced blocks of a guide, as a reader takes them.

/// What a reader does with a block.
pub(super) enum Block {
    /// Saves it. The file's name is in the comment of its first line.
    File { name: String, text: String },
    /// Starts it, and leaves it running.
    Program(String),
    /// Types what follows a `$`, and sees what follows that.
    Session(Vec<(String, String)>),
    /// Only looks at it.
    Other,
}

/// All of them, in order.
pub(super) fn blocks(guide: &str) -> Vec<Block> {
    let fenced = guide.split("\n```").skip(1).step_by(2);
    fenced
        .map(|fenced| block(fenced.split_once('\n').unwrap()))
        .collect()
}

fn block((language, text): (&str, &str)) -> Block {
    match language {
        "python" | "js" | "toml" => {
            let comment = text.lines().next().unwrap();
            let name = comment.trim_start_matches(['#', '/', ' ']);
            assert!(name.contains('.'), "no file's name: {comment}");
            Block::File {
                name: name.to_owned(),
                text: text.to_owned(),
            }
        }
        "sh" => Block::Program(text.to_owned()),
        "console" => Block::Session(session(text)),
        _ => Block::Other,
    }
}

fn session(text: &str) -> Vec<(String, String)> {
    let mut exchanges: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        match (line.strip_prefix("$ "), exchanges.last_mut()) {
            (None, Some((command, _))) if goes_on => *command += &format!("\n{line}"),
            (None, Some((_, printed))) => *printed += &format!("{line}\n"),
            (command, _) => {
                let command = command.expect("a session begins with a command");
                exchanges.push((command.to_owned(), String::new()));
            }
        }
        let is_command = goes_on || line.starts_with("$ ");
        goes_on = is_command && line.ends_with('\\');
    }
    exchanges
}
