//! Which headers a replay repeats: what describes the answer, and nothing of its first delivery.

use http::HeaderName;
use http::header::{
    CONNECTION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION,
    CONTENT_TYPE, ETAG, LAST_MODIFIED, LINK, LOCATION, PROXY_AUTHENTICATE, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};

use crate::verify::answer::Answer;
use crate::verify::check::Ruling;
use crate::verify::probe::Probe;
use crate::verify::report::Judged;

const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
const DESCRIBING: [HeaderName; 9] = [
    CONTENT_TYPE,
    CONTENT_LANGUAGE,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LOCATION,
    LOCATION,
    LAST_MODIFIED,
    LINK,
    ETAG,
];

pub(crate) async fn cookies_are_not_replayed(probe: &Probe<'_>) -> Ruling {
    if !probe.policy().http.drop_headers.contains(&SET_COOKIE) {
        return Ok(Judged::not_applicable("the profile keeps cookies"));
    }
    let first = &probe.soundings().first;
    if first.lines(&SET_COOKIE).is_empty() {
        return Ok(Judged::not_applicable("the endpoint sets no cookie"));
    }
    let retry = probe.ask("a retry").key(&probe.soundings().key);
    let replay = probe.send(&retry).await?;

    let cookies = replay.lines(&SET_COOKIE);
    let repeated = |lines: &[&[u8]]| lines.iter().any(|line| cookies.contains(line));
    if !repeated(&first.lines(&SET_COOKIE)) {
        return Ok(Judged::pass("the replay has none of the first cookies"));
    }
    // Something in front may put one and the same cookie on everything, replays included.
    if repeated(&probe.soundings().second.lines(&SET_COOKIE)) {
        return Ok(Judged::inconclusive(
            "cannot tell: every answer sets the same cookie",
        ));
    }
    Ok(Judged::fail("the replay sets the first answer's cookie"))
}

pub(crate) async fn headers_of_one_connection_are_not_replayed(probe: &Probe<'_>) -> Ruling {
    let first = &probe.soundings().first;
    let differing: Vec<_> = hop_by_hop(first)
        .into_iter()
        .filter(|name| {
            let lines = first.lines(name);
            !lines.is_empty() && lines != probe.soundings().second.lines(name)
        })
        .collect();
    // A server writes such headers on every answer; only one that differs shows where it is from.
    if differing.is_empty() {
        return Ok(Judged::not_applicable(
            "no such header of the endpoint differs between two answers",
        ));
    }
    let retry = probe.ask("a retry").key(&probe.soundings().key);
    let replay = probe.send(&retry).await?;

    for name in &differing {
        if replay.lines(name) == first.lines(name) {
            return Ok(Judged::fail(format!("the replay repeats {name}")));
        }
    }
    let names: Vec<_> = differing.iter().map(HeaderName::as_str).collect();
    Ok(Judged::pass(format!("not repeated: {}", names.join(", "))))
}

pub(crate) async fn headers_that_describe_the_answer_are_replayed(probe: &Probe<'_>) -> Ruling {
    let first = &probe.soundings().first;
    let marks_body = probe.policy().http.body_marks.is_some();
    let described: Vec<_> = DESCRIBING
        .into_iter()
        .filter(|name| !first.lines(name).is_empty())
        // A marked body is another representation.
        .filter(|name| !(marks_body && *name == ETAG))
        .collect();
    if described.is_empty() {
        return Ok(Judged::not_applicable("the endpoint sends no such header"));
    }
    let retry = probe.ask("a retry").key(&probe.soundings().key);
    let replay = probe.send(&retry).await?;

    for name in &described {
        if replay.lines(name) != first.lines(name) {
            let did = if replay.lines(name).is_empty() {
                "lost"
            } else {
                "changed"
            };
            return Ok(Judged::fail(format!("the replay has {did} {name}")));
        }
    }
    let names: Vec<_> = described.iter().map(HeaderName::as_str).collect();
    Ok(Judged::pass(format!("the same: {}", names.join(", "))))
}

/// The names of headers that belong to one connection, with those that `Connection` names.
fn hop_by_hop(answer: &Answer) -> Vec<HeaderName> {
    let named = answer.lines(&CONNECTION).concat();
    let named = String::from_utf8_lossy(&named).into_owned();
    let named = named
        .split(',')
        .filter_map(|name| name.trim().parse::<HeaderName>().ok());
    HOP_BY_HOP.into_iter().chain(named).collect()
}
