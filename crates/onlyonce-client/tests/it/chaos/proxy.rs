//! A proxy that treats each request as its fate wants: loses, tears, delays and doubles it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// Passed on, and its reply too.
    Pass,
    /// The connection is reset before anything is read.
    Refuse,
    /// It is read and goes nowhere.
    LoseRequest,
    /// Its first half arrives.
    TearRequest,
    /// It arrives; the reply is lost.
    LoseReply,
    /// It arrives; half of the reply comes back.
    TearReply,
    /// It arrives late.
    Delay,
    /// It arrives twice at the same time.
    Double,
    /// It arrives again some time after it was answered.
    Echo,
}

impl Fate {
    pub(crate) const ALL: [Self; 9] = [
        Self::Pass,
        Self::Refuse,
        Self::LoseRequest,
        Self::TearRequest,
        Self::LoseReply,
        Self::TearReply,
        Self::Delay,
        Self::Double,
        Self::Echo,
    ];
}

const DELAY_MAX: Duration = Duration::from_millis(30);
const READ_BYTES: usize = 16 * 1024;

pub(crate) struct Proxy {
    pub(crate) address: String,
    fates: Arc<Fates>,
}

/// A plan, and dice for when it is at its end.
struct Fates {
    plan: Mutex<VecDeque<Fate>>,
    dice: Option<Mutex<ChaCha8Rng>>,
    met: Mutex<Vec<Fate>>,
}

impl Proxy {
    /// Each connection has the next of these fates; then all pass.
    pub(crate) async fn start(service: &str, plan: impl IntoIterator<Item = Fate>) -> Self {
        Self::with(service, plan.into_iter().collect(), None).await
    }

    /// Half of all connections pass, the others meet any fate.
    pub(crate) async fn random(service: &str, seed: u64) -> Self {
        let dice = ChaCha8Rng::seed_from_u64(seed);
        Self::with(service, VecDeque::new(), Some(Mutex::new(dice))).await
    }

    async fn with(service: &str, plan: VecDeque<Fate>, dice: Option<Mutex<ChaCha8Rng>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let service: Arc<str> = service.trim_start_matches("http://").into();
        let fates = Arc::new(Fates {
            plan: Mutex::new(plan),
            dice,
            met: Mutex::default(),
        });
        let drawn = Arc::clone(&fates);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (fates, service) = (Arc::clone(&drawn), Arc::clone(&service));
                // A connection that breaks is what we are here for.
                tokio::spawn(async move { carry(client, &service, &fates).await });
            }
        });
        Self { address, fates }
    }

    /// How many requests met this fate.
    pub(crate) fn met(&self, fate: Fate) -> usize {
        let met = self.fates.met.lock().unwrap();
        met.iter().filter(|other| **other == fate).count()
    }
}

impl Fates {
    fn draw(&self) -> (Fate, Duration) {
        let planned = self.plan.lock().unwrap().pop_front();
        let (fate, delay) = match (&self.dice, planned) {
            (_, Some(fate)) => (fate, Duration::ZERO),
            (None, None) => (Fate::Pass, Duration::ZERO),
            (Some(dice), None) => {
                let mut dice = dice.lock().unwrap();
                let any = Fate::ALL[dice.random_range(0..Fate::ALL.len())];
                let fate = if dice.random_bool(0.5) {
                    Fate::Pass
                } else {
                    any
                };
                (fate, dice.random_range(Duration::ZERO..DELAY_MAX))
            }
        };
        self.met.lock().unwrap().push(fate);
        (fate, delay)
    }
}

/// One request on one connection.
async fn carry(mut client: TcpStream, service: &str, fates: &Fates) -> io::Result<()> {
    let (fate, delay) = fates.draw();
    // Whatever is not sent by then is lost, and the other side learns it by a reset.
    client.set_zero_linger()?;
    if fate == Fate::Refuse {
        return Ok(());
    }
    let request = read_request(&mut client).await?;
    match fate {
        Fate::Refuse | Fate::LoseRequest => {}
        Fate::TearRequest => {
            let mut server = TcpStream::connect(service).await?;
            server.write_all(&request[..request.len() / 2]).await?;
        }
        Fate::LoseReply => drop(exchange(service, &request).await?),
        Fate::TearReply => {
            let reply = exchange(service, &request).await?;
            client.write_all(&reply[..reply.len() / 2]).await?;
            client.flush().await?;
        }
        Fate::Pass => answer(client, &exchange(service, &request).await?).await?,
        Fate::Delay => {
            sleep(delay).await;
            answer(client, &exchange(service, &request).await?).await?;
        }
        Fate::Double => {
            let (one, other) =
                tokio::join!(exchange(service, &request), exchange(service, &request));
            drop(other?);
            answer(client, &one?).await?;
        }
        Fate::Echo => {
            answer(client, &exchange(service, &request).await?).await?;
            sleep(delay).await;
            drop(exchange(service, &request).await?);
        }
    }
    Ok(())
}

/// Hands the whole reply over, and ends the connection in peace.
async fn answer(mut client: TcpStream, reply: &[u8]) -> io::Result<()> {
    client.write_all(reply).await?;
    client.shutdown().await?;
    // The reply is with the other side once that ends the connection too.
    let mut rest = [0; 64];
    while client.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Sends a request on a connection of its own, and reads its reply.
async fn exchange(service: &str, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(service).await?;
    server.write_all(request).await?;
    read_message(&mut server).await
}

async fn read_request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    read_message(client).await
}

/// Reads a head, and as much body as it announces.
async fn read_message(peer: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    let mut chunk = vec![0; READ_BYTES];
    loop {
        if let Some(end) = message.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&message[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if message.len() >= end + 4 + length.unwrap_or(0) {
                return Ok(message);
            }
        }
        match peer.read(&mut chunk).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => message.extend(&chunk[..read]),
        }
    }
}
