//! A proxy that knows where a request and an answer end, and breaks them in every way that a network does. The tests
//! of MCP have it too.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What happens to one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// The connection is closed; the service hears nothing.
    Unheard,
    /// The answer is lost.
    AnswerLost,
    /// The answer breaks off in its head.
    CutInHead,
    /// The answer breaks off in its body.
    CutInBody,
    /// The answer comes after the client has given up.
    Late,
    /// Somebody in between asks for a pause; the service hears nothing.
    Unavailable,
    /// Somebody in between asks for a pause, though the service has answered.
    UnavailableAfterwards,
    /// The request comes twice at once.
    Twice,
    /// It comes twice at once, and no answer arrives.
    TwiceAndLost,
}

use Fault::{
    AnswerLost, CutInBody, CutInHead, Late, Twice, TwiceAndLost, Unavailable,
    UnavailableAfterwards, Unheard,
};

pub(crate) const FAULTS: [Fault; 9] = [
    Unheard,
    AnswerLost,
    CutInHead,
    CutInBody,
    Late,
    Unavailable,
    UnavailableAfterwards,
    Twice,
    TwiceAndLost,
];
/// Attempts of one key that go wrong; the next one passes.
const FAULTY_ATTEMPTS: usize = 3;
/// Longer than clients wait.
const LATE: Duration = Duration::from_millis(1500);
const PAUSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// By what a request and its repetitions are known; one without it passes.
type KeyOf = fn(&[u8]) -> Option<String>;

/// The proxy; it ends with the test's runtime.
pub(crate) struct FaultyProxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    key_of: KeyOf,
    /// Attempts of each key so far, and the number of the key.
    seen: Mutex<HashMap<String, (usize, usize)>>,
    happened: Mutex<HashMap<Fault, usize>>,
}

impl FaultyProxy {
    pub(crate) async fn start(server: SocketAddr, key_of: KeyOf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server,
            key_of,
            seen: Mutex::default(),
            happened: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // A client that hung up is one of the faults.
                tokio::spawn(async move { drop(shared.serve(client).await) });
            }
        });
        Self { address, shared }
    }

    /// How often each fault has happened.
    pub(crate) fn happened(&self) -> HashMap<Fault, usize> {
        self.shared.happened.lock().unwrap().clone()
    }
}

impl Shared {
    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let request = read_request(&mut client).await?;
        let key = (self.key_of)(&request);
        let Some(fault) = key.and_then(|key| self.next_fault(&key)) else {
            return self.pass(&request, &mut client).await;
        };
        *self.happened.lock().unwrap().entry(fault).or_default() += 1;
        match fault {
            Unheard => {}
            AnswerLost => drop(self.ask(&request).await?),
            CutInHead => {
                let answer = self.ask(&request).await?;
                client.write_all(&answer[..head_len(&answer) / 2]).await?;
            }
            CutInBody => {
                let answer = self.ask(&request).await?;
                let head = head_len(&answer);
                let cut = head + (answer.len() - head) / 2;
                client.write_all(&answer[..cut]).await?;
            }
            Late => {
                let answer = self.ask(&request).await?;
                tokio::time::sleep(LATE).await;
                client.write_all(&answer).await?;
            }
            Unavailable => client.write_all(PAUSE).await?,
            UnavailableAfterwards => {
                self.ask(&request).await?;
                client.write_all(PAUSE).await?;
            }
            Twice => {
                let (_, answer) = tokio::try_join!(self.ask(&request), self.ask(&request))?;
                client.write_all(&answer).await?;
            }
            TwiceAndLost => {
                drop(tokio::try_join!(self.ask(&request), self.ask(&request))?);
            }
        }
        client.shutdown().await
    }

    /// Each key meets faults in the same order, and each from another one on.
    fn next_fault(&self, key: &str) -> Option<Fault> {
        let mut seen = self.seen.lock().unwrap();
        let number = seen.len();
        let (number, attempts) = seen.entry(key.to_owned()).or_insert((number, 0));
        *attempts += 1;
        let fault = FAULTS[(*number + *attempts) % FAULTS.len()];
        (*attempts <= FAULTY_ATTEMPTS).then_some(fault)
    }

    async fn send(&self, request: &[u8]) -> io::Result<TcpStream> {
        let mut server = TcpStream::connect(self.server).await?;
        let head = head_len(request);
        server.write_all(&request[..head - 2]).await?;
        server.write_all(b"connection: close\r\n\r\n").await?;
        server.write_all(&request[head..]).await?;
        Ok(server)
    }

    /// An answer as it comes, until one side closes: it may be a stream without an end.
    async fn pass(&self, request: &[u8], client: &mut TcpStream) -> io::Result<()> {
        let mut server = self.send(request).await?;
        let (mut said, mut to_server) = server.split();
        let (mut heard, mut to_client) = client.split();
        tokio::select! {
            passed = tokio::io::copy(&mut said, &mut to_client) => drop(passed?),
            left = tokio::io::copy(&mut heard, &mut to_server) => drop(left?),
        }
        client.shutdown().await
    }

    /// The whole answer of the server.
    async fn ask(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut server = self.send(request).await?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

/// One request, whole.
async fn read_request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        if client.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let head = head_len(&request);
        if head == 0 {
            continue;
        }
        let length = header(&request, "content-length").map_or(0, |it| it.parse().unwrap());
        if request.len() >= head + length {
            return Ok(request);
        }
    }
}

/// The length of a message's head with the empty line; 0 if it is not all there.
pub(crate) fn head_len(message: &[u8]) -> usize {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n");
    end.map_or(0, |at| at + 4)
}

pub(crate) fn header(message: &[u8], name: &str) -> Option<String> {
    let head = String::from_utf8_lossy(&message[..head_len(message)]).into_owned();
    let mut pairs = head.lines().filter_map(|line| line.split_once(':'));
    let value = pairs.find(|(found, _)| found.eq_ignore_ascii_case(name))?.1;
    Some(value.trim().to_owned())
}
