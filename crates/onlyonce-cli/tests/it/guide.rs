//! docs/guides/gateway.md and docs/guides/outbox.md, done as it says: its files are written, its programs started, its
//! commands run, and what they print is what the guide says.

use rcgen::{CertifiedKey, generate_simple_self_signed};

use self::blocks::{Block, blocks};
use self::reader::Reader;

mod blocks;
mod reader;

const GATEWAY: &str = include_str!("../../../../docs/guides/gateway.md");
const OUTBOX: &str = include_str!("../../../../docs/guides/outbox.md");
const ADMIN_TOKEN: &str = "an-operators-token-of-some-length";
/// The guides with code in Rust, which is run with the doc tests of onlyonce.
const RUST: [&str; 2] = [
    include_str!("../../../../docs/guides/axum.md"),
    include_str!("../../../../docs/guides/consumers.md"),
];

#[tokio::test]
async fn the_guide_to_the_gateway_does_what_it_says() {
    let mut reader = Reader::new();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
    reader.has("cert.pem", &cert.pem());
    reader.has("key.pem", &signing_key.serialize_pem());
    reader.has("admin.token", ADMIN_TOKEN);
    reader.knows("ONLYONCE_ADMIN_TOKEN", ADMIN_TOKEN);
    reader.has("jwt.key", "a-secret-that-sign-in-and-gateway-share");
    reader.has("token.py", include_str!("guide/token.py"));
    let token = reader.runs("python3 token.py").await;
    reader.knows("TOKEN", token.trim_end());

    follow(&mut reader, GATEWAY).await;

    assert_eq!(reader.started(), 6, "two services, four gateways");
    reader.ends().await;
}

#[tokio::test]
async fn the_guide_to_the_outbox_does_what_it_says() {
    let mut reader = Reader::new();
    reader.knows("ONLYONCE_QUEUE", "outbox");

    follow(&mut reader, OUTBOX).await;

    assert_eq!(reader.started(), 2, "a service and a daemon");
    reader.ends().await;
}

/// Does what a guide says, block by block.
async fn follow(reader: &mut Reader, guide: &str) {
    for block in blocks(guide) {
        match block {
            Block::File { name, text } => reader.has(&name, &text),
            Block::Program(command) => reader.starts(&command).await,
            Block::Session(exchanges) => {
                for (command, printed) in exchanges {
                    let printed = reader.here(&printed);
                    assert_eq!(reader.runs(&command).await, printed, "{command}");
                }
            }
            Block::Other => panic!("a block that nothing runs"),
        }
    }
}

#[test]
fn the_features_that_guides_ask_for_exist() {
    let manifest = include_str!("../../../onlyonce/Cargo.toml");
    for guide in RUST {
        let (_, wanted) = guide
            .split_once("onlyonce = { version = \"0.1\", ")
            .unwrap();
        let (_, wanted) = wanted.split_once('[').unwrap();
        let (wanted, _) = wanted.split_once(']').unwrap();
        for feature in wanted.split(',') {
            let line = format!("\n{} = [", feature.trim().trim_matches('"'));
            assert!(manifest.contains(&line), "{feature}");
        }
    }
}
