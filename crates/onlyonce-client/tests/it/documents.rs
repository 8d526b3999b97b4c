//! The documents' own scenarios, as far as they are a client's: D0 §6.6 and §8.1, D3.

use std::time::Duration;

use onlyonce_client::{
    Cause, Group, Keys, Operation, Queue, QueueOptions, Retry, Sender, Status, job_key,
    workflow_key,
};
use onlyonce_core::{Policy, Profile};
use serde_json::json;
use tempfile::tempdir;

use crate::chaos::proxy::{Fate, Proxy};
use crate::profiles;
use crate::support::{HOUR, Say, Script, Service, http, operation};

/// A sender that does not keep a test waiting.
fn quick() -> Sender {
    let millisecond = Duration::from_millis(1);
    Sender::new(http()).retry(Retry {
        backoff_min: millisecond,
        backoff_max: millisecond,
        in_progress_delay: 20 * millisecond,
        ..Retry::default()
    })
}

async fn formbridge() -> Service {
    Service::start(Profile::Formbridge.policy()).await
}

#[tokio::test]
async fn d0_6_6_1_an_agent_retries_with_its_key_and_makes_a_new_one_for_new_work() {
    let service = formbridge().await;
    let keys = Keys::default();
    let current = keys.idem();

    let first = quick()
        .send(&service.operation("acme"), &current)
        .await
        .unwrap();
    let retry = quick()
        .send(&service.operation("acme"), &current)
        .await
        .unwrap();
    let new = quick()
        .send(&service.operation("acme"), &keys.idem())
        .await
        .unwrap();

    assert!(!first.is_replayed && retry.is_replayed && !new.is_replayed);
    assert_eq!(
        (first.reply.status.as_u16(), retry.reply.status.as_u16()),
        (201, 200)
    );
    assert_eq!(service.applied()["acme"], 2);
}

#[tokio::test]
async fn d0_6_6_2_a_workflow_that_is_run_again_does_no_step_twice() {
    let service = formbridge().await;
    for _run in 0..2 {
        for step in ["create", "set-tax-info", "submit"] {
            let key = workflow_key("onboard-vendor-123", step).unwrap();
            quick().send(&service.operation(step), &key).await.unwrap();
        }
    }

    assert_eq!(
        service.applied().into_values().collect::<Vec<_>>(),
        [1, 1, 1]
    );
}

#[tokio::test]
async fn d0_6_6_3_a_client_finds_the_key_of_a_request_that_it_has_started() {
    let service = formbridge().await;
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), quick()).await.unwrap();

    for _click in 0..3 {
        queue
            .enqueue_unless_known(service.operation("acme"))
            .await
            .unwrap();
        queue.drain().await.unwrap();
    }

    assert_eq!(service.applied()["acme"], 1);
}

#[tokio::test]
async fn d0_6_6_3_a_conflict_is_not_retried() {
    let service = formbridge().await;
    let key = Keys::default().idem();
    let sender = quick();
    let with = |amount: u32| {
        let bare = Operation::post(&service.url("pay")).unwrap();
        bare.json(&json!({"amount": amount})).unwrap()
    };
    sender.send(&with(1), &key).await.unwrap();

    let conflict = sender.send(&with(2), &key).await.unwrap_err();

    assert_eq!((conflict.cause, conflict.attempts), (Cause::Conflict, 1));
    assert_eq!(conflict.reply.unwrap().status, 409);
    assert_eq!(service.applied()["pay"], 1);
}

#[tokio::test]
async fn d0_6_6_4_a_form_that_is_sent_again_after_an_error_is_one_submission() {
    let service = formbridge().await;
    let proxy = Proxy::start(&service.address, [Fate::LoseReply]).await;
    let form = Operation::post(&format!("{}/apply/form", proxy.address)).unwrap();
    // Made when the form is shown.
    let key = Keys::default().idem();
    let sender = quick();

    let error = sender.attempt(&form, &key).await.unwrap_err();
    let retry = sender.attempt(&form, &key).await.unwrap();

    assert_eq!(error.cause, Cause::Interrupted);
    assert!(retry.is_replayed);
    assert_eq!(service.applied()["form"], 1);
}

#[tokio::test]
async fn d0_6_6_5_a_job_that_is_delivered_twice_is_done_once() {
    let service = formbridge().await;
    for _delivery in 0..2 {
        let key = job_key("7f3a9d2e").unwrap();
        quick().send(&service.operation("job"), &key).await.unwrap();
    }

    assert_eq!(service.applied()["job"], 1);
}

#[tokio::test]
async fn d0_8_1_3_whatever_became_of_the_first_request_its_retry_is_right() {
    for (fate, replayed) in [
        (Fate::LoseReply, true),
        (Fate::LoseRequest, false),
        (Fate::TearRequest, false),
        (Fate::TearReply, true),
    ] {
        let service = formbridge().await;
        let proxy = Proxy::start(&service.address, [fate]).await;
        let submit = Operation::post(&format!("{}/apply/a", proxy.address)).unwrap();

        let sent = quick()
            .send(&submit, &Keys::default().idem())
            .await
            .unwrap();

        assert_eq!((sent.attempts, sent.is_replayed), (2, replayed), "{fate:?}");
        assert_eq!(service.applied()["a"], 1, "{fate:?}");
    }
}

#[tokio::test]
async fn d3_case_1_a_client_waits_for_a_concurrent_request_and_hears_its_answer() {
    let (address, gate) = profiles::start(Profile::Guardian.policy()).await;
    let (operation, key) = (
        Operation::post(&format!("{address}/slow")).unwrap(),
        Keys::default().v4(),
    );
    let sender = quick();
    let devices: Vec<_> = (0..2)
        .map(|_| {
            let (sender, operation, key) = (sender.clone(), operation.clone(), key.clone());
            tokio::spawn(async move { sender.send(&operation, &key).await })
        })
        .collect();
    while sender.counts().failed(Cause::InProgress) == 0 {
        tokio::task::yield_now().await;
    }
    // One of them has been told CONCURRENT_REQUEST. A single pass, for the one that runs.
    gate.add_permits(1);

    for device in devices {
        let sent = device.await.unwrap().unwrap();
        assert_eq!(sent.reply.body, "slow");
    }
    assert_eq!(sender.counts().succeeded, 2);
}

#[tokio::test]
async fn d3_case_3_a_client_does_not_repeat_what_the_service_has_forgotten() {
    let forgetful = Policy {
        keep_for: Duration::from_millis(1),
        ..Profile::Guardian.policy()
    };
    let service = Service::start(forgetful).await;
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), quick()).await.unwrap();
    let key = Keys::default().v4();
    queue
        .enqueue_as(&key, service.operation("user"))
        .await
        .unwrap();
    queue.drain().await.unwrap();
    // A client without a success log does it again.
    while service.applied()["user"] == 1 {
        quick()
            .send(&service.operation("user"), &key)
            .await
            .unwrap();
    }

    let again = queue
        .enqueue_as(&key, service.operation("user"))
        .await
        .unwrap();
    queue.drain().await.unwrap();

    assert!(!again.is_new);
    assert_eq!(service.applied()["user"], 2);
}

#[tokio::test]
async fn d3_case_4_an_operation_that_is_modified_before_its_retry_is_sent_under_a_new_key() {
    let service = Service::start(Profile::Guardian.policy()).await;
    let proxy = Proxy::start(&service.address, [Fate::LoseRequest]).await;
    let folder = tempdir().unwrap();
    let options = QueueOptions {
        backoff_min: 100_000 * HOUR,
        backoff_max: 100_000 * HOUR,
        ..QueueOptions::default()
    };
    let queue = Queue::open_with(folder.path(), quick(), options)
        .await
        .unwrap();
    let with = |email: &str| {
        let bare = Operation::post(&format!("{}/apply/{email}", proxy.address)).unwrap();
        bare.json(&json!({"email": email})).unwrap()
    };
    let id = queue.enqueue(with("old")).await.unwrap();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    while let Some(Status::Waiting { attempts: 0, .. }) = queue.status(id).await.unwrap() {
        tokio::task::yield_now().await;
    }

    queue.edit(id, with("new")).await.unwrap();
    draining.await.unwrap().unwrap();

    assert_eq!(
        service.applied().into_iter().collect::<Vec<_>>(),
        [("new".into(), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn d3_integration_test_an_operation_that_is_processed_twice_is_sent_once() {
    let script = Script::new([]);
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    let key = Keys::default().v4();

    for _ in 0..2 {
        queue.enqueue_as(&key, operation("users")).await.unwrap();
        queue.drain().await.unwrap();
    }

    assert_eq!(script.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn d3_integration_test_a_concurrent_request_is_retried_after_2_s() {
    let busy = json!({"error": {"code": "CONCURRENT_REQUEST", "message": "Concurrent request"}});
    let script = Script::new([Say::Json(409, busy)]);
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();

    queue.enqueue(operation("users")).await.unwrap();
    queue.drain().await.unwrap();

    let seen = script.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(2));
}

#[tokio::test]
async fn d3_groups_a_user_and_a_room_are_made_together() {
    let service = Service::start(Profile::Guardian.policy()).await;
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), quick()).await.unwrap();
    let no_such_place = Operation::post(&format!("{}/rooms", service.address)).unwrap();
    let undo = Operation::delete(&service.url("undo-user")).unwrap();

    let both = Group::new()
        .step(service.operation("user"))
        .step(service.operation("room"));
    queue.enqueue_group(both).await.unwrap();
    let neither = Group::new()
        .step_or_undo(service.operation("lonely-user"), undo)
        .step(no_such_place);
    queue.enqueue_group(neither).await.unwrap();
    queue.drain().await.unwrap();

    let applied: Vec<_> = service.applied().into_keys().collect();
    assert_eq!(applied, ["lonely-user", "room", "undo-user", "user"]);
}
