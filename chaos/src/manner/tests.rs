use super::*;

fn ok(body: &str) -> Heard {
    Heard {
        status: StatusCode::OK,
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

#[test]
fn answers_are_read_in_their_order_and_only_whole_ones() {
    let two = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\noneHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo";

    assert_eq!(read_all(two), [ok("one"), ok("two")]);
    assert_eq!(read_all(&two[..two.len() - 1]), [ok("one")]);
    assert_eq!(read_all(b"HTTP/1.1 200 OK\r\n\r\nsome"), []);
    assert_eq!(read_all(b""), []);
}

#[test]
fn a_protocol_change_is_an_answer_too() {
    let changed = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";

    let heard = read_all(changed);

    assert_eq!(heard[0].status, StatusCode::SWITCHING_PROTOCOLS);
}

#[test]
fn every_manner_sends_the_same_key_and_body() {
    let order = Order {
        host: "shop.example",
        key: "chaos-1-17",
        body: "250",
    };

    for manner in ODD {
        let sent = String::from_utf8(manner.bytes(&order)).expect("text");

        let requests = if manner == Manner::Pipelined { 2 } else { 1 };
        assert_eq!(
            sent.matches("\r\nIdempotency-Key: chaos-1-17\r\n").count(),
            requests
        );
        assert_eq!(sent.matches("\r\n\r\n250").count(), requests, "{manner:?}");
    }
}
