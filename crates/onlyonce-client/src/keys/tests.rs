use std::collections::BTreeSet;
use std::time::Duration;

use onlyonce_core::{Clock, Timestamp};
use proptest::prelude::*;

use super::*;

struct At(u64);

impl Clock for At {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.0)
    }
}

/// Gives the same byte for ever.
struct Always(u8);

impl Entropy for Always {
    fn fill(&self, out: &mut [u8]) {
        out.fill(self.0);
    }
}

fn keys_at(millis: u64) -> Keys {
    Keys::new(Arc::new(At(millis)), Arc::new(Always(0xff)))
}

fn takes(key: &Key, profile: onlyonce_core::Profile) -> bool {
    Key::parse(key.expose().as_bytes(), &profile.policy().key).is_ok()
}

#[test]
fn a_random_key_is_a_uuid_of_version_4_that_every_profile_takes() {
    let key = Keys::default().v4();

    for profile in onlyonce_core::profile::all() {
        assert!(takes(&key, profile), "{profile}");
    }
}

#[test]
fn random_keys_are_unique() {
    let keys = Keys::default();

    let made: BTreeSet<String> = (0..1000).map(|_| keys.v4().expose().to_owned()).collect();

    assert_eq!(made.len(), 1000);
}

#[test]
fn random_keys_come_from_the_randomness_that_was_passed() {
    assert_eq!(
        keys_at(0).v4().expose(),
        "ffffffff-ffff-4fff-bfff-ffffffffffff"
    );
    assert_eq!(
        keys_at(0).idem().expose(),
        "idem_ffffffff-ffff-4fff-bfff-ffffffffffff"
    );
}

#[test]
fn keys_of_version_7_sort_by_their_time() {
    let earlier = keys_at(1_700_000_000_000).v7();
    let later = keys_at(1_700_000_000_001).v7();

    assert_eq!(&earlier.expose()[14..15], "7");
    assert!(earlier.expose() < later.expose());
}

#[test]
fn derived_keys_look_as_the_document_writes_them() {
    assert_eq!(
        workflow_key("onboard-vendor-123", "create")
            .unwrap()
            .expose(),
        "workflow-onboard-vendor-123_step-create"
    );
    assert_eq!(job_key("job_17-a").unwrap().expose(), "job_job_17-a");
}

#[test]
fn a_name_cannot_reach_into_its_neighbour() {
    let one = workflow_key("a_step-b", "c").unwrap();
    let other = workflow_key("a", "b_step-c").unwrap();

    assert_ne!(one, other);
    assert_ne!(job_key("a.5f").unwrap(), workflow_key("a", "5f").unwrap());
    assert_ne!(job_key(".5f").unwrap(), job_key("_").unwrap());
}

#[test]
fn an_empty_name_is_refused() {
    assert_eq!(job_key("").unwrap_err(), KeyError::Empty);
    assert_eq!(workflow_key("", "a").unwrap_err(), KeyError::Empty);
    assert_eq!(workflow_key("a", "").unwrap_err(), KeyError::Empty);
}

#[test]
fn a_long_name_still_makes_a_key_that_differs_from_all_others() {
    let long = "x".repeat(5000);
    let key = job_key(&long).unwrap();

    assert!(takes(&key, onlyonce_core::Profile::Middleware));
    assert_ne!(key, job_key(&"x".repeat(5001)).unwrap());
    assert_eq!(key, job_key(&long).unwrap());
    // The digest's own text as a name is another job.
    assert_ne!(key, job_key(key.expose()).unwrap());
    assert_ne!(key, job_key(&key.expose()["job.".len()..]).unwrap());
}

proptest! {
    #[test]
    fn different_names_have_different_keys(
        one in ("[a_.\\-é/]{1,6}", "[a_.\\-ste]{1,6}"),
        other in ("[a_.\\-é/]{1,6}", "[a_.\\-ste]{1,6}"),
    ) {
        let key = |pair: &(String, String)| workflow_key(&pair.0, &pair.1).unwrap();
        prop_assert_eq!(one == other, key(&one) == key(&other));
        prop_assert_eq!(one.0 == other.0, job_key(&one.0).unwrap() == job_key(&other.0).unwrap());
        prop_assert!(takes(&key(&one), onlyonce_core::Profile::Formbridge));
        prop_assert_ne!(key(&one), job_key(&other.0).unwrap());
    }
}

#[test]
fn a_key_that_services_would_read_as_another_one_is_not_sent() {
    let any = |text: &str| Key::new(text, &KeyRule::any()).unwrap();

    for key in [" a", "a ", "\"a\"", "\"a"] {
        assert_eq!(key_header(&any(key)), Err(KeyNotSendable), "{key:?}");
    }
    for key in ["a", "a b", "a,b", "a\"b\"", "größe-✓", "\u{a0}a"] {
        let header = key_header(&any(key)).unwrap();
        assert_eq!(Key::parse(header.as_bytes(), &KeyRule::any()), Ok(any(key)));
        assert!(header.is_sensitive());
    }
}
