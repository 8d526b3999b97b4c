//! The curl lines to try. Above each stands what it answers: its status, and what is to be found in
//! it. The tests run them all.

use std::fmt::Write as _;
use std::net::SocketAddr;

use onlyonce_core::{Policy, Reason};

/// One line to try.
struct Line {
    /// Its status, then what else is in the answer.
    answers: String,
    /// Why that is so.
    because: &'static str,
    curl: String,
}

/// What the lines are about.
pub(super) struct About<'a> {
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    /// The rules of the intakes that are built in, if these are the ones that are served.
    pub(super) intakes: Option<&'a Policy>,
    /// Whether the forms are those that are built in.
    pub(super) has_test_form: bool,
    /// What makes the keys ones that nobody used before.
    pub(super) fresh: &'a str,
}

/// All lines.
pub(super) fn of(about: &About<'_>) -> String {
    let About { listen, admin, .. } = about;
    let mut text = String::new();
    for (title, lines) in sections(about) {
        let _ = write!(text, "\n## {title}\n");
        for line in lines {
            let (answers, because, curl) = (&line.answers, line.because, &line.curl);
            let _ = write!(text, "# {answers} ({because})\n{curl}\n");
        }
    }
    if about.has_test_form {
        let _ = write!(
            text,
            "\n## Forms to click on twice, to go back to, to reload: one record\n\
             http://{listen}/forms/test-form\n\
             http://{listen}/forms/event-registration\n"
        );
    }
    let _ = write!(
        text,
        "\n## What operators see\n\
         http://{admin}/\n\
         onlyonce keys list --admin http://{admin}\n\
         onlyonce keys top --admin http://{admin}\n\
         onlyonce keys watch --admin http://{admin}\n"
    );
    text
}

fn sections(about: &About<'_>) -> Vec<(&'static str, Vec<Line>)> {
    let About {
        listen,
        admin,
        intakes,
        has_test_form,
        fresh,
    } = about;
    let post = |path: &str, key: &str, json: &str| {
        format!("curl -i http://{listen}{path} -H 'Idempotency-Key: {key}' --json '{json}'")
    };
    let intake = |company: &str| {
        let json = format!("{{\"fields\":{{\"companyName\":\"{company}\"}}}}");
        let key = format!("idem_{fresh}");
        post("/api/intakes/vendor-onboarding/submit", &key, &json)
    };
    let form = |data: &str| {
        let json = format!("{{\"contextId\":\"test-form:{fresh}\",\"formData\":{data}}}");
        format!("curl -i http://{listen}/api/forms/test-form/submit --json '{json}'")
    };
    let user = || {
        let token = format!(
            "$(curl -s http://{listen}/api/v1/tokens --json '{{\"id\":\"ada\"}}' | cut -d'\"' -f4)"
        );
        format!(
            "curl -i http://{listen}/api/v1/users -H \"Authorization: Bearer {token}\" \
             -H 'Idempotency-Key: {fresh}-e29b-41d4-a716-446655440000' \
             --json '{{\"meta\":{{}},\"payload\":{{\"email\":\"ada@example.com\"}}}}'"
        )
    };
    let charge = || {
        let key = format!("charge-{fresh}");
        post("/legacy/charges", &key, "{\"cents\":500}")
    };
    let submissions = intakes.map(|policy| {
        let refused = policy.http.refusals.row(Reason::Mismatch);
        (
            "An intake: a submission, its retry, and another payload under its key",
            vec![
                Line::new("201", "submitted", intake("Acme Corp")),
                Line::new(
                    "200, idempotent-replayed: true, the same body",
                    "a retry gets the first one's answer",
                    intake("Acme Corp"),
                ),
                Line::new(
                    format!("{}, {}", refused.status, refused.code),
                    "a key means one payload",
                    intake("Evil Corp"),
                ),
            ],
        )
    });
    let submitted = has_test_form.then(|| {
        (
            "A form without a key: one is derived from the session and the data",
            vec![
                Line::new(
                    "200, Form submitted successfully",
                    "a record is made",
                    form("{\"name\":\"John Doe\",\"email\":\"john@example.com\"}"),
                ),
                Line::new(
                    "200, \"idempotent\":true",
                    "the same data in another order is the same submission",
                    form("{ \"email\": \"john@example.com\", \"name\": \"John Doe\" }"),
                ),
                Line::new(
                    "200, Form submitted successfully",
                    "other data is another",
                    form("{\"name\":\"John Doe\",\"email\":\"john2@example.com\"}"),
                ),
            ],
        )
    });
    let others = vec![
        (
            "A sync client: every call has a new token, and is still the same user's",
            vec![
                Line::new("201, user_id", "made", user()),
                Line::new("201, the same body", "not made again", user()),
            ],
        ),
        (
            "A service that knows nothing of keys: the gateway in front of it does",
            vec![
                Line::new("201, charge_id", "charged", charge()),
                Line::new(
                    "201, idempotent-replayed: true, the same body",
                    "not charged again",
                    charge(),
                ),
            ],
        ),
        (
            "For operators",
            vec![
                Line::new(
                    "200, records",
                    "how many keys are kept",
                    format!("curl -i http://{admin}/api/v1/stats"),
                ),
                Line::new(
                    "200, idempotency_request_replayed_total",
                    "what was counted, for Prometheus",
                    format!("curl -i http://{admin}/metrics"),
                ),
            ],
        ),
    ];
    submissions
        .into_iter()
        .chain(submitted)
        .chain(others)
        .collect()
}

impl Line {
    fn new(answers: impl Into<String>, because: &'static str, curl: String) -> Self {
        Self {
            answers: answers.into(),
            because,
            curl,
        }
    }
}
