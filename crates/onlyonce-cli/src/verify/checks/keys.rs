//! What a key may look like, and what happens without one. What to expect is asked of the policy's
//! own key rule.

use onlyonce_core::key::Charset;
use onlyonce_core::policy::{KeyNeed, KeyTime};
use onlyonce_core::{Key, Reason};

use crate::verify::cause::Code;
use crate::verify::check::Ruling;
use crate::verify::json::Members;
use crate::verify::probe::Probe;
use crate::verify::report::Judged;

pub(crate) async fn an_empty_key_is_refused(probe: &Probe<'_>) -> Ruling {
    let quoted = ("\"\"", "an empty quoted key");
    // Quotes are a header's.
    let quoted = probe.plan().key_place.is_none().then_some(quoted);
    for (key, label) in [("", "an empty key")].into_iter().chain(quoted) {
        let answer = probe.send(&probe.ask(label).key(key)).await?;
        probe.refuses(&answer, Reason::BadKey, label)?;
    }
    Ok(Judged::pass("it was refused"))
}

pub(crate) async fn a_key_may_be_as_long_as_the_bound(probe: &Probe<'_>) -> Ruling {
    let rule = &probe.policy().key;
    if rule.charset == Charset::UuidV4 || is_uuid_v7(probe) {
        return Ok(Judged::not_applicable("keys are UUIDs, all of one length"));
    }
    let uuids = rule.bytes_max / probe.fresh_key().len() + 1;
    let mut key: String = (0..=uuids).map(|_| probe.fresh_key()).collect();
    key.truncate(rule.bytes_max);
    probe.journal().hide(&key);

    let label = format!("a key of {} bytes", key.len());
    let answer = probe.send(&probe.ask(&label).key(&key)).await?;
    if !answer.is_success() {
        let status = answer.status;
        let judged = Judged::fail(format!("{label} was answered {status}"));
        return Ok(judged.code(Code::GoodRefused));
    }
    key.push('k');
    let label = format!("a key of {} bytes", key.len());
    let answer = probe.send(&probe.ask(&label).key(&key)).await?;
    probe.refuses(&answer, Reason::BadKey, &label)?;
    Ok(Judged::pass(format!(
        "the bound is {} bytes",
        rule.bytes_max
    )))
}

pub(crate) async fn a_key_may_have_the_characters_of_the_profile(probe: &Probe<'_>) -> Ruling {
    if is_uuid_v7(probe) {
        return Ok(Judged::not_applicable("keys are UUIDs of version 7"));
    }
    let uuid = || probe.fresh_key();
    let mut version_1 = uuid();
    version_1.replace_range(14..15, "1");
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for (name, key) in [
        ("a colon", format!("{}:7", uuid())),
        ("a space", format!("{} 7", uuid())),
        ("a tab", format!("{}\t7", uuid())),
        ("a slash", format!("{}/7", uuid())),
        ("an underscore", format!("{}_7", uuid())),
        ("a quote that never closes", format!("\"{}", uuid())),
        ("a UUID of version 1", version_1),
    ] {
        let label = format!("a key with {name}");
        probe.journal().hide(&key);
        let answer = probe.send(&probe.ask(&label).key(&key)).await?;
        let rule = &probe.policy().key;
        let read = match probe.plan().key_place {
            Some(_) => Key::new(&key, rule),
            None => Key::parse(key.as_bytes(), rule),
        };
        if read.is_err() {
            probe.refuses(&answer, Reason::BadKey, &label)?;
            refused.push(name);
        } else if answer.is_success() {
            taken.push(name);
        } else {
            let status = answer.status;
            let judged = Judged::fail(format!(
                "{label} was answered {status}, the profile takes it"
            ));
            return Ok(judged.code(Code::GoodRefused));
        }
    }
    let list = |names: Vec<&str>| match &names[..] {
        [] => "nothing".to_owned(),
        names => names.join(", "),
    };
    Ok(Judged::pass(format!(
        "taken: {}; refused: {}",
        list(taken),
        list(refused)
    )))
}

pub(crate) async fn two_key_lines_are_refused(probe: &Probe<'_>) -> Ruling {
    let (key, other) = (probe.fresh_key(), probe.fresh_key());
    for (second, label) in [(&key, "the key twice"), (&other, "two keys")] {
        let answer = probe.send(&probe.ask(label).key(&key).key(second)).await?;
        probe.refuses(&answer, Reason::BadKey, label)?;
    }
    Ok(Judged::pass("they were refused"))
}

pub(crate) async fn a_request_without_a_key_gets_what_the_profile_says(
    probe: &Probe<'_>,
) -> Ruling {
    let plan = probe.plan();
    if plan.policy.http.methods.need(&plan.method) == Some(KeyNeed::Required) {
        let answer = probe.send(&probe.ask("no key")).await?;
        if answer.is_success() {
            let judged = Judged::fail("a request without a key was run, and a key is required");
            return Ok(judged.code(Code::UnkeyedRuns));
        }
        probe.refuses(&answer, Reason::MissingKey, "a request without a key")?;
        return Ok(Judged::pass("it was refused"));
    }
    if data_field(probe).is_some() {
        return Ok(Judged::not_applicable("a missing key is derived"));
    }
    let first = probe.send(&probe.ask("no key")).await?;
    let second = probe.send(&probe.ask("no key again")).await?;

    for answer in [&first, &second] {
        if !answer.is_success() {
            let judged = Judged::fail(format!(
                "it was answered {}, the profile lets it pass",
                answer.status
            ));
            return Ok(judged.code(Code::GoodRefused));
        }
    }
    Ok(probe.runs_anew(&first, &second, "a second request without a key"))
}

pub(crate) async fn a_missing_key_is_derived_from_the_data(probe: &Probe<'_>) -> Ruling {
    if probe.policy().http.derive.is_none() {
        return Ok(Judged::not_applicable("the profile derives no keys"));
    }
    let payload = &probe.plan().payload;
    let Some(field) = data_field(probe) else {
        return Ok(Judged::not_applicable(
            "the body has no data to derive a key from",
        ));
    };
    let respelled = payload.respelled().unwrap_or_else(|| payload.clone());
    let Some(altered) = payload.altered_in(field) else {
        return Ok(Judged::not_applicable("the data cannot be varied"));
    };

    let first = probe.run(&probe.ask("no key")).await?;
    let retry = probe.ask("the same data, respelled").payload(respelled);
    let retry = probe.send(&retry).await?;
    let other = probe.run(&probe.ask("other data").payload(altered)).await?;

    let told = probe.is_of(&first, &retry, "the same data", probe.is_telling)?;
    if retry.is_flagged(probe.policy()) == Some(false) {
        return Ok(Judged::fail("the same data did not get a replay"));
    }
    if first.is_like(&other, probe.policy()) {
        return Ok(match told {
            crate::verify::telling::Told::Same => {
                Judged::fail("other data got the answer of the first").code(Code::KeysConfused)
            }
            crate::verify::telling::Told::CannotTell => told.conclude(""),
        });
    }
    Ok(told.conclude("the same data replays, other data runs"))
}

/// Whether keys carry their time, and so have a form of their own.
fn is_uuid_v7(probe: &Probe<'_>) -> bool {
    let rule = probe.policy().http.key_time.as_ref();
    rule.is_some_and(|rule| rule.from == KeyTime::UuidV7)
}

/// The member of this run's body that a key is derived from.
fn data_field<'a>(probe: &Probe<'a>) -> Option<&'a str> {
    let rule = probe.policy().http.derive.as_ref()?;
    let members = Members::of(&probe.plan().payload.bytes)?;
    members
        .get(&rule.data_field)
        .is_some()
        .then_some(&rule.data_field)
}

pub(crate) async fn the_quoted_and_the_bare_form_are_one_key(probe: &Probe<'_>) -> Ruling {
    if probe.plan().key_place.is_some() {
        return Ok(Judged::not_applicable("keys are in the body, unquoted"));
    }
    let key = probe.fresh_key();
    let first = probe.run(&probe.ask("a bare key").key(&key)).await?;
    let quoted = probe.ask("the key in quotes").key(&format!("\"{key}\""));
    let retry = probe.send(&quoted).await?;
    let told = probe.replays(&first, &retry, "the key in quotes")?;
    Ok(told.conclude("both reach the same answer"))
}

pub(crate) async fn keys_are_case_sensitive(probe: &Probe<'_>) -> Ruling {
    let key = probe.fresh_key();
    let first = probe.run(&probe.ask("a key").key(&key)).await?;
    let other = probe.ask("the key in capitals").key(&key.to_uppercase());
    let answer = probe.send(&other).await?;
    Ok(probe.runs_anew(&first, &answer, "the key in capitals"))
}
