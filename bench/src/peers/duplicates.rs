//! Many requests with one key at the same moment, for a handler that takes its time.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Barrier;

use super::who::{Bed, Started};
use crate::client::{Answer, Client, Post};
use crate::failure::Failure;
use crate::report::{Row, Unit};

const DUPLICATES: usize = 64;
const CASE: &str = "64 duplicates";
const KEY: &str = "3f9d2c7a-64d0-4a64-8b64-duplicate";

pub(super) fn run(
    name: &'static str,
    bed: &Bed<'_>,
    started: &Started,
    cookies: &[String],
) -> Result<Vec<Row>, Failure> {
    let before = bed.runs();
    let sending = send(started.port, started.slow, cookies.first().cloned());
    let answers = bed.runtime.block_on(sending)?;
    let runs = bed.runs() - before;
    let served: Vec<_> = answers.iter().filter(|it| it.status.is_success()).collect();
    let different: BTreeSet<_> = served.iter().map(|it| &it.body).collect();
    let row = |what, count: usize| Row::alone(name, CASE, what, (count as f64, Unit::Count), None);
    Ok(vec![
        row("handler runs", usize::try_from(runs).unwrap_or(usize::MAX)),
        row("served", served.len()),
        row("different answers", different.len()),
    ])
}

/// All connections are there before anything is sent.
async fn send(
    port: u16,
    path: &'static str,
    cookie: Option<String>,
) -> Result<Vec<Answer>, Failure> {
    let start = Arc::new(Barrier::new(DUPLICATES));
    let mut tasks = Vec::new();
    for _ in 0..DUPLICATES {
        let mut client = Client::connect(port).await?;
        let (start, cookie) = (Arc::clone(&start), cookie.clone());
        tasks.push(tokio::spawn(async move {
            start.wait().await;
            let post = Post {
                path,
                key: Some(KEY),
                cookie: cookie.as_deref(),
            };
            client.post(post).await
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        // A caller without an answer is not served, and that is what is measured.
        answers.extend(task.await.map_err(Failure::doing("send duplicates"))?);
    }
    Ok(answers)
}
