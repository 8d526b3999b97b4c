//! Keys, credentials, cookies and bodies are secrets (requirement K9): whatever happens to a
//! request, none of them shows in logs, events, errors or stores, in no spelling.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use onlyonce_core::{Key, KeyRule, Response, SlotSecret, codec};
use onlyonce_tower::ScopePart;

use crate::support::App;

mod needles;
mod runs;

use self::needles::Needles;
use self::runs::{KEYS, RESPONSE, SECRETS, Told};

/// Everything written through `tracing`, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log from here on, on this thread, until it is dropped.
struct Capture {
    log: Log,
    _default: tracing::subscriber::DefaultGuard,
    /// With a single subscriber, tracing asks the thread that first meets a log line whether
    /// anyone listens, and remembers its no for all. With two it asks the subscribers.
    _second: tracing::Dispatch,
}

impl Capture {
    fn start() -> Self {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self {
            log,
            _second: tracing_subscriber::fmt()
                .with_writer(io::sink)
                .finish()
                .into(),
            _default: tracing::subscriber::set_default(subscriber),
        }
    }
}

/// All that the app's stores keep, printed and encoded.
async fn stored(app: &App) -> Vec<Vec<u8>> {
    let mut kept = Vec::new();
    for record in app.records().await {
        kept.push(format!("{record:?} {record:#?}").into_bytes());
        kept.push(codec::encode_meta(&record.meta).to_vec());
        if let Some(response) = record.response() {
            // The body is the handler's own.
            let bare = Response {
                body: Bytes::new(),
                ..Response::clone(response)
            };
            kept.push(codec::encode_response(&bare).to_vec());
        }
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn no_outcome_shows_a_secret_in_logs_events_errors_or_stores() {
    let mut kept = Needles::of(SECRETS);
    kept.add(RESPONSE);
    let mut needles = Needles::of(SECRETS).but_for_labels_of(KEYS);
    needles.add(RESPONSE);
    // Once unheard, so that every log line is known before anyone listens.
    runs::all().await;
    let capture = Capture::start();

    let told: Vec<Told> = runs::all().await;

    assert!(told.len() > 20);
    for Told {
        what,
        app,
        refusals,
    } in &told
    {
        needles.assert_absent(&format!("{what}: events"), app.events.printed());
        for bytes in stored(app).await {
            kept.assert_absent(&format!("{what}: store"), bytes);
        }
        for refusal in refusals {
            needles.assert_absent(&format!("{what}: refusal"), &refusal.body);
        }
    }
    // Replays are told when they are counted.
    for Told { app, .. } in &told {
        app.engine.flush_replays().await;
    }
    let log = capture.log.text();
    needles.assert_absent("log", &log);
    for event in [
        "key.weak",
        "lock.attempt",
        "cache.lookup",
        "processed",
        "cache.oversized",
        "replay",
        "conflict",
        "refused",
        "handler.panicked",
        "handler.timeout",
        "outcome_unknown",
        "not_run",
        "storage.error",
        "unprotected",
    ] {
        let named = format!("event=\"idempotency.{event}\"");
        assert!(log.contains(&named), "{event} was never provoked");
    }
}

#[tokio::test]
async fn what_can_be_printed_prints_no_secret() {
    let needles = Needles::of(SECRETS).but_for_labels_of(SECRETS);
    let rule = KeyRule::default();
    let mut printed = Vec::new();
    for secret in SECRETS {
        let key = Key::new(secret, &rule).unwrap();
        let hint = key.hint();
        printed.push(format!("{key:?} {key:#?} {hint} {hint:?}"));
        for broken in [format!("{secret}\t"), format!("{secret}\u{7f}{secret}")] {
            let error = Key::new(&broken, &rule).unwrap_err();
            printed.push(format!("{error} {error:?}"));
        }
        let error = Key::parse(format!("\"{secret}").as_bytes(), &rule).unwrap_err();
        printed.push(format!("{error} {error:?}"));
    }

    needles.assert_absent("keys and their errors", printed.join("\n"));
    let part = ScopePart::Cookie("sid".into());
    assert_eq!(format!("{part:?}"), "Cookie(\"sid\")");
}

#[cfg(feature = "jwt")]
#[test]
fn a_verifier_does_not_print_its_secret() {
    use onlyonce_tower::scope::JwtVerifier;

    let secret = SECRETS[0];
    let verifier = JwtVerifier::hs256(secret.as_bytes());

    Needles::of(&[secret]).assert_absent("verifier", format!("{verifier:?} {verifier:#?}"));
}

/// The slot is a keyed digest: without the secret nobody can try keys against a stolen store.
#[tokio::test]
async fn the_address_of_a_record_depends_on_the_installation_s_secret() {
    let (key, scope) = (SECRETS[0], onlyonce_core::Scope::new("prod"));
    let key = Key::new(key, &KeyRule::default()).unwrap();

    let slots = [1, 2].map(|byte| {
        let secret = SlotSecret::from_bytes([byte; SlotSecret::BYTES]);
        secret.slot(&scope, &key)
    });

    assert_ne!(slots[0], slots[1]);
}
