//! A worker of recorded histories, on any store of this crate. It is started by a run: see
//! `onlyonce_testkit::history::Run`, and its example `history`.

use onlyonce_testkit::history::{WorkerError, worker_main};

fn main() -> Result<(), WorkerError> {
    worker_main(async |url: &str| onlyonce_stores::open(url).await)
}
