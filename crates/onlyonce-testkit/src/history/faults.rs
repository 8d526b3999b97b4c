//! Faults of a real store, made of this crate's proxy and servers. What a server keeps must outlive
//! its crash, or the history will rightly show what was lost.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::driver::StoreFault;
use crate::proxy::Proxy;
use crate::servers::Server;
use crate::sim::dice::Dice;

/// Replies that are lost at a time, at most.
const REPLIES_MAX: u64 = 20;

/// A network that cuts, refuses and holds back connections for a time in this range of
/// milliseconds, is slow for so long, or loses replies.
pub fn network(proxy: Arc<Proxy>, lasts: RangeInclusive<u64>) -> StoreFault {
    Arc::new(move |number| {
        let proxy = Arc::clone(&proxy);
        let mut dice = Dice::new(number);
        let ms = dice.between(lasts.clone());
        let (kind, replies) = (dice.below(5), dice.between(1..=REPLIES_MAX));
        Box::pin(async move {
            let done = fail(&proxy, kind, ms, replies).await;
            done.unwrap_or_else(|error| format!("the proxy failed: {error}"))
        })
    })
}

async fn fail(proxy: &Proxy, kind: u64, ms: u64, replies: u64) -> io::Result<String> {
    let lasts = Duration::from_millis(ms);
    match kind {
        0 => {
            proxy.cut().await?;
            Ok("connections cut".to_owned())
        }
        1 => {
            proxy.refuse().await?;
            tokio::time::sleep(lasts).await;
            proxy.resume().await?;
            Ok(format!("connections refused for {ms} ms"))
        }
        2 => {
            proxy.stall().await;
            tokio::time::sleep(lasts).await;
            proxy.resume().await?;
            Ok(format!("everything held back for {ms} ms"))
        }
        3 => {
            proxy.delay(lasts / 10);
            tokio::time::sleep(lasts).await;
            proxy.delay(Duration::ZERO);
            Ok(format!("replies late for {ms} ms"))
        }
        _ => {
            proxy.drop_replies(replies);
            tokio::time::sleep(lasts).await;
            proxy.drop_replies(0);
            Ok(format!("at most {replies} replies lost"))
        }
    }
}

/// A server that crashes and comes back, or hangs for a time in this range of milliseconds.
pub fn crashes<S>(server: Arc<S>, lasts: RangeInclusive<u64>) -> StoreFault
where
    S: Server + Send + Sync + 'static,
{
    Arc::new(move |number| {
        let server = Arc::clone(&server);
        let mut dice = Dice::new(number);
        let pause = Duration::from_millis(dice.between(lasts.clone()));
        let crashes = dice.chance(500);
        let fail = move || {
            if crashes {
                server.kill()?;
                server.start_again()?;
                return Ok("the server crashed".to_owned());
            }
            server.pause()?;
            std::thread::sleep(pause);
            server.resume()?;
            Ok(format!("the server hung for {pause:?}"))
        };
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(fail).await;
            let failed = |error: crate::servers::ServerError| format!("the server failed: {error}");
            match done {
                Ok(done) => done.unwrap_or_else(failed),
                Err(error) => error.to_string(),
            }
        })
    })
}

/// One of these at a time.
pub fn any_of(faults: Vec<StoreFault>) -> StoreFault {
    Arc::new(move |number| {
        let mut dice = Dice::new(number);
        let fault = dice.index(faults.len());
        faults[fault](number.rotate_left(32))
    })
}
