//! The caller by a verified token: a refreshed one finds its record, a forged one never does.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use onlyonce_core::{Engine, MemoryStore, Profile};
use onlyonce_tower::scope::JwtVerifier;
use onlyonce_tower::{IdempotencyLayer, ScopePart};
use serde_json::{Value, json};

use super::runs_of;
use crate::support::{App, Ask, PATH, post, uuid};

const SECRET: &[u8] = b"a test secret of more than 32 bytes";
const RSA_PRIVATE: &[u8] = include_bytes!("../keys/test-rsa-private.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("../keys/test-rsa-public.pem");
const EC_PRIVATE: &[u8] = include_bytes!("../keys/test-ec-private.pem");
const EC_PUBLIC: &[u8] = include_bytes!("../keys/test-ec-public.pem");

fn sign(claims: &Value, algorithm: Algorithm, key: &EncodingKey) -> String {
    encode(&Header::new(algorithm), claims, key).expect("a token")
}

fn hs256(claims: &Value) -> String {
    sign(claims, Algorithm::HS256, &EncodingKey::from_secret(SECRET))
}

/// Alice's claims in a token that lives for so many seconds from now.
fn alice(lives: i64) -> Value {
    let now = i64::try_from(get_current_timestamp()).expect("a time");
    json!({"iss": "https://login", "sub": "alice", "exp": now + lives})
}

async fn verified_by(profile: Profile, verifier: JwtVerifier) -> App {
    by_claim("sub", profile, verifier).await
}

async fn by_claim(claim: &str, profile: Profile, verifier: JwtVerifier) -> App {
    App::under(profile)
        .scope([ScopePart::Jwt(claim.into())])
        .tokens(verifier)
        .open()
        .await
}

/// Asserts the 401 that a client answers with a new token, for a reason that says `word`.
async fn assert_unverified(app: &App, request: &Ask, word: &str) {
    let before = app.runs();
    let answer = app.send(request).await;
    assert_eq!((answer.status, app.runs()), (401, before), "{word}");
    assert_eq!(
        answer.header("www-authenticate"),
        Some("Bearer error=\"invalid_token\"")
    );
    assert!(answer.text().contains(word), "{}", answer.text());
}

#[tokio::test]
async fn a_refreshed_token_replays() {
    for profile in Profile::ALL {
        let app = verified_by(profile, JwtVerifier::hs256(SECRET)).await;
        let request = post(PATH).key(uuid(1));
        let first = request.clone().bearer(&hs256(&alice(600)));
        let refreshed = request.bearer(&hs256(&alice(1200)));

        assert_eq!(runs_of(&app, [&first, &refreshed]).await, [1, 1]);
        let record = app.record().await;
        assert_eq!(record.meta.actor.as_deref(), Some("alice"), "{profile}");
        assert_eq!(record.meta.credential, None, "{profile}");
    }
}

/// `{type, id}` of log and audit; nobody makes a system of himself by his name.
#[tokio::test]
async fn the_actor_s_type_is_what_the_verified_claim_says() {
    for (kind, name) in [
        (json!("agent"), "agent:alice"),
        (json!("robot"), "user:alice"),
        (json!(7), "user:alice"),
    ] {
        let mut claims = alice(600);
        claims["kind"] = kind;
        let app = App::under(Profile::Standard)
            .but(|policy| policy.http.actor_type = "jwt:kind".parse().ok())
            .scope([ScopePart::Jwt("sub".into())])
            .tokens(JwtVerifier::hs256(SECRET))
            .open()
            .await;

        app.send(&post(PATH).key(uuid(1)).bearer(&hs256(&claims)))
            .await;

        let record = app.record().await;
        assert_eq!(record.meta.actor.as_deref(), Some(name));
    }
}

#[tokio::test]
async fn rsa_and_ecdsa_tokens_are_verified_by_their_public_keys() {
    let rsa = EncodingKey::from_rsa_pem(RSA_PRIVATE).unwrap();
    let ec = EncodingKey::from_ec_pem(EC_PRIVATE).unwrap();
    let by_rsa = JwtVerifier::rs256(RSA_PUBLIC).unwrap();
    let by_ec = JwtVerifier::es256(EC_PUBLIC).unwrap();
    for (verifier, public, algorithm, key) in [
        (by_rsa, RSA_PUBLIC, Algorithm::RS256, rsa),
        (by_ec, EC_PUBLIC, Algorithm::ES256, ec),
    ] {
        let app = verified_by(Profile::Standard, verifier).await;
        let request = post(PATH).key("k");
        let first = request.clone().bearer(&sign(&alice(600), algorithm, &key));
        let refreshed = request.clone().bearer(&sign(&alice(1200), algorithm, &key));
        // The public key is no secret: signing with it must not make a token genuine.
        let public = EncodingKey::from_secret(public);
        let confused = request.bearer(&sign(&alice(600), Algorithm::HS256, &public));

        assert_eq!(runs_of(&app, [&first, &refreshed]).await, [1, 1]);
        assert_unverified(&app, &confused, "no key").await;
    }
}

#[tokio::test]
async fn a_key_that_is_none_is_an_error_and_not_a_panic() {
    for pem in [&b""[..], b"not a key", EC_PUBLIC] {
        assert!(JwtVerifier::rs256(pem).is_err());
    }
    assert!(JwtVerifier::es256(RSA_PUBLIC).is_err());
}

#[tokio::test]
async fn a_forged_or_expired_token_never_reaches_the_record() {
    let genuine = hs256(&alice(600));
    let (unsigned, signature) = genuine.rsplit_once('.').unwrap();
    let other_key = EncodingKey::from_secret(b"another secret of more than 32 bytes");
    let forgeries = [
        sign(&alice(600), Algorithm::HS256, &other_key),
        sign(
            &alice(600),
            Algorithm::HS512,
            &EncodingKey::from_secret(SECRET),
        ),
        format!("{unsigned}."),
        format!("{unsigned}.{}", signature.to_uppercase()),
        hs256(&alice(-600)),
        hs256(&json!({"iss": "https://login", "sub": "alice"})),
    ];
    let app = verified_by(Profile::Standard, JwtVerifier::hs256(SECRET)).await;
    let request = post(PATH).key("k");
    let own = request.clone().bearer(&genuine);
    assert_eq!(app.send(&own).await.run(), 1);

    for forgery in &forgeries {
        assert_unverified(&app, &request.clone().bearer(forgery), "").await;
        assert_eq!(app.send(&own).await.run(), 1);
    }
}

/// Taken for a stranger, its caller would run the same operation again.
#[tokio::test]
async fn a_caller_whose_token_expires_between_two_tries_does_not_run_twice() {
    let app = verified_by(Profile::Standard, JwtVerifier::hs256(SECRET)).await;
    let request = post(PATH).key("k");
    assert_eq!(
        app.send(&request.clone().bearer(&hs256(&alice(600))))
            .await
            .run(),
        1
    );

    let expired = request.clone().bearer(&hs256(&alice(-600)));
    assert_unverified(&app, &expired, "expired").await;

    let refreshed = request.bearer(&hs256(&alice(1200)));
    assert_eq!(app.send(&refreshed).await.run(), 1);
}

#[tokio::test]
async fn a_credential_that_is_no_token_is_only_ever_itself() {
    let app = verified_by(Profile::Standard, JwtVerifier::hs256(SECRET)).await;
    let request = post(PATH).key("k");
    let opaque = request.clone().bearer("sk_live_1");
    let basic = request.header("authorization", "Basic YWxpY2U6eA==");

    assert_eq!(
        runs_of(&app, [&opaque, &basic, &opaque, &basic]).await,
        [1, 2, 1, 2]
    );
}

#[tokio::test]
async fn callers_are_told_apart_by_issuer_and_claim() {
    let app = by_claim("account", Profile::Standard, JwtVerifier::hs256(SECRET)).await;
    let exp = get_current_timestamp() + 600;
    let by = |issuer: &str, account: &str, subject: &str| {
        let claims = json!({"iss": issuer, "sub": subject, "account": account, "exp": exp});
        post(PATH).key("k").bearer(&hs256(&claims))
    };
    let acme = by("one", "acme", "alice");
    let colleague = by("one", "acme", "bob");
    let globex = by("one", "globex", "alice");
    let elsewhere = by("two", "acme", "alice");
    let anonymous = post(PATH).key("k");

    let runs = runs_of(&app, [&acme, &colleague, &globex, &elsewhere, &anonymous]).await;

    assert_eq!(runs, [1, 1, 2, 3, 4]);
}

#[tokio::test]
async fn only_the_configured_issuer_and_audience_are_verified() {
    let verifier = JwtVerifier::hs256(SECRET)
        .issuer("https://login")
        .audience("orders");
    let app = verified_by(Profile::Standard, verifier).await;
    let exp = get_current_timestamp() + 600;
    let by = |issuer: &str, audience: &str, jti: u64| {
        let claims =
            json!({"iss": issuer, "aud": audience, "sub": "alice", "exp": exp, "jti": jti});
        post(PATH).key("k").bearer(&hs256(&claims))
    };
    let own = by("https://login", "orders", 1);
    let refreshed = by("https://login", "orders", 2);
    let other_issuer = by("https://evil", "orders", 3);
    let other_audience = by("https://login", "refunds", 4);

    assert_eq!(runs_of(&app, [&own, &refreshed]).await, [1, 1]);
    assert_unverified(&app, &other_issuer, "another issuer").await;
    assert_unverified(&app, &other_audience, "another audience").await;
}

#[tokio::test]
async fn a_configured_issuer_and_audience_are_required_and_every_claim_is_of_its_type() {
    let verifier = JwtVerifier::hs256(SECRET)
        .issuer("https://login")
        .audience("orders");
    let app = verified_by(Profile::Standard, verifier).await;
    let now = get_current_timestamp();
    let whole = json!({
        "iss": "https://login", "aud": ["orders", "refunds"], "sub": "alice",
        "exp": now + 600, "nbf": now - 600,
    });
    let changed = |name: &str, value: Value| {
        let mut claims = whole.clone();
        claims[name] = value;
        claims
            .as_object_mut()
            .unwrap()
            .retain(|_, it| !it.is_null());
        post(PATH).key("k").bearer(&hs256(&claims))
    };
    assert_eq!(app.send(&changed("jti", json!(1))).await.run(), 1);

    for (name, value) in [
        ("iss", Value::Null),
        ("iss", json!(5)),
        ("iss", json!(["https://login"])),
        ("aud", Value::Null),
        ("aud", json!(5)),
        ("aud", json!(["orders", 5])),
        ("aud", json!([])),
        ("aud", json!({"orders": true})),
        ("nbf", json!(now + 600)),
        ("nbf", json!("soon")),
        ("exp", Value::Null),
        ("exp", json!("never")),
        ("exp", json!(now - 600)),
    ] {
        let what = format!("{name}: {value}");
        let answer = app.send(&changed(name, value)).await;
        assert_eq!((answer.status, app.runs()), (401, 1), "{what}");
    }
}

#[tokio::test]
async fn claims_of_a_wrong_type_are_refused_where_none_is_configured_too() {
    let app = verified_by(Profile::Standard, JwtVerifier::hs256(SECRET)).await;
    for (name, value) in [("aud", json!(5)), ("iss", json!(5)), ("nbf", json!("soon"))] {
        let mut claims = alice(600);
        claims[name] = value;
        let request = post(PATH).key("k").bearer(&hs256(&claims));

        assert_unverified(&app, &request, "").await;
    }
}

#[tokio::test]
async fn a_verified_token_without_the_claim_that_names_its_caller_is_refused() {
    for sub in [Value::Null, json!(7), json!("")] {
        let app = verified_by(Profile::Standard, JwtVerifier::hs256(SECRET)).await;
        let mut claims = alice(600);
        claims["sub"] = sub;
        let request = post(PATH).key("k").bearer(&hs256(&claims));

        let answer = app.send(&request).await;

        assert_eq!((answer.status, app.runs()), (400, 0), "{claims}");
        assert!(answer.text().contains("claim sub"), "{}", answer.text());
    }
}

#[tokio::test]
async fn two_authorization_lines_are_refused_here_too() {
    let app = verified_by(Profile::Standard, JwtVerifier::hs256(SECRET)).await;
    let request = post(PATH)
        .key("k")
        .bearer(&hs256(&alice(600)))
        .bearer("another");

    let answer = app.send(&request).await;

    assert_eq!((answer.status, app.runs()), (400, 0));
}

/// Its digest would be another address with every retry, and every retry would run.
#[tokio::test]
async fn a_credential_that_differs_with_every_request_is_refused_here_too() {
    let app = verified_by(Profile::Standard, JwtVerifier::hs256(SECRET)).await;

    for nonce in 0..2 {
        let credential = format!("Digest username=\"alice\", nonce=\"{nonce}\"");
        let request = post(PATH).key("k").header("authorization", credential);
        let answer = app.send(&request).await;

        assert_eq!((answer.status, app.runs()), (400, 0));
    }
}

#[tokio::test]
async fn nobody_is_warned_where_tokens_are_verified() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let layer = IdempotencyLayer::new(engine).tokens(JwtVerifier::hs256(SECRET));

    let verified = layer.clone().scope([ScopePart::Jwt("sub".into())]);
    let with_route = layer.scope([ScopePart::Route, ScopePart::Jwt("sub".into())]);

    assert!(verified.warnings().is_empty());
    assert!(with_route.warnings().is_empty());
}

/// Not taken for anonymous: its record would be everybody's.
#[tokio::test]
async fn a_scope_that_asks_for_a_token_refuses_everybody_where_nothing_verifies_tokens() {
    let app = App::under(Profile::Standard)
        .scope([ScopePart::Jwt("sub".into())])
        .open()
        .await;

    for request in [post(PATH).key("k"), post(PATH).key("k").bearer("opaque")] {
        let answer = app.send(&request).await;

        assert_eq!((answer.status, app.runs()), (400, 0));
        assert!(answer.text().contains("nothing here verifies tokens"));
    }
}

/// The public keys of the tests, as a set.
fn key_set() -> Value {
    let ec = Jwk::from_encoding_key(
        &EncodingKey::from_ec_pem(EC_PRIVATE).unwrap(),
        Algorithm::ES256,
    );
    let rsa = Jwk::from_encoding_key(
        &EncodingKey::from_rsa_pem(RSA_PRIVATE).unwrap(),
        Algorithm::RS256,
    );
    let shared = URL_SAFE_NO_PAD.encode(SECRET);
    let mut keys = [json!(ec.unwrap()), json!(rsa.unwrap())];
    keys[0]["kid"] = json!("ec-1");
    keys[1]["kid"] = json!("rsa-1");
    let [ec, rsa] = keys;
    json!({"keys": [
        {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "other"},
        ec,
        rsa,
        {"kty": "oct", "k": shared, "alg": "HS256", "kid": "shared-1"},
    ]})
}

fn sign_as(kid: Option<&str>, lives: i64, algorithm: Algorithm, key: &EncodingKey) -> String {
    let mut header = Header::new(algorithm);
    header.kid = kid.map(str::to_owned);
    encode(&header, &alice(lives), key).expect("a token")
}

#[tokio::test]
async fn a_key_set_verifies_by_the_key_a_token_names() {
    let ec = EncodingKey::from_ec_pem(EC_PRIVATE).unwrap();
    let rsa = EncodingKey::from_rsa_pem(RSA_PRIVATE).unwrap();
    let shared = EncodingKey::from_secret(SECRET);
    let verifier = JwtVerifier::jwks(key_set().to_string().as_bytes()).unwrap();
    let app = verified_by(Profile::Standard, verifier).await;
    let request = post(PATH).key("k");

    // Alice is Alice, whichever key of the set signed.
    for (kid, algorithm, key) in [
        (Some("ec-1"), Algorithm::ES256, &ec),
        (Some("rsa-1"), Algorithm::RS256, &rsa),
        (Some("shared-1"), Algorithm::HS256, &shared),
        (None, Algorithm::RS256, &rsa),
    ] {
        let ask = request.clone().bearer(&sign_as(kid, 600, algorithm, key));
        assert_eq!(app.send(&ask).await.run(), 1, "{kid:?}");
    }

    // A token that names another key than the one that signed it is nobody's.
    let misnamed = sign_as(Some("rsa-2"), 600, Algorithm::RS256, &rsa);
    assert_unverified(&app, &request.bearer(&misnamed), "no key").await;
}

#[test]
fn a_key_set_without_a_key_to_use_is_an_error() {
    for json in [
        "",
        "[]",
        "{\"keys\":[]}",
        r#"{"keys":[{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"}]}"#,
    ] {
        assert!(JwtVerifier::jwks(json.as_bytes()).is_err(), "{json}");
    }
}
