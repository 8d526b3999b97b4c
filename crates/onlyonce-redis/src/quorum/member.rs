//! One server of the quorum as an acceptor: each question is one script over a connection that all of
//! a register's questions share, so that they arrive in the order they were asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::redis::{Cmd, Pipeline, Value};
use onlyonce_core::{Clock, SystemClock, async_trait};
use onlyonce_quorum::{
    Accept, Accepted, Acceptor, Bell, Cursor, Deed, Fault, Identity, Look, Names, Prepare,
    Prepared, Seat, Seen, ServerTime, SharedEpoch,
};
use tokio::sync::Semaphore;

use self::reply::{ballot, fault, odd, seen};
use super::scripts::{Scripts, Step};
use super::watch::Watch;
use crate::dial::{Dial, To};
use crate::ear::{Ear, Listening};
use crate::link::Link;
use crate::lock;
use crate::trouble::{Trouble, refusal};
use crate::url::{Servers, Settings};
use crate::value::millis;

mod reply;
mod voting;

pub(super) use self::reply::bytes;

/// So many questions may wait for one server. What is asked of one that hangs is bounded by it.
const QUESTIONS_MAX: usize = 4096;
/// How many keys a server looks at before it answers.
const KEYS_AT_ONCE: usize = 256;

/// What a script says first.
const REFUSED: i64 = 0;
const VOTED: i64 = 1;
const TOLD: i64 = 2;

/// The set of servers, as all of them know it.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) members: Arc<str>,
    /// Raised whenever a server joins: no vote from before counts together with one from after.
    pub(super) epoch: Arc<SharedEpoch>,
}

/// One server.
pub(super) struct Member {
    /// Its place in the set.
    pub(super) seat: String,
    set: Set,
    clock: SystemClock,
    time: ServerTime,
    pub(super) watch: Watch,
    links: Vec<Link>,
    pub(super) dial: Dial,
    ear: Ear,
    /// What a register's key begins with.
    prefix: Vec<u8>,
    pub(super) identity: Vec<u8>,
    pub(super) scripts: Arc<Scripts>,
    /// Why it does not vote, as it was last found.
    unfit: Mutex<Option<Fault>>,
    questions: Semaphore,
}

impl Member {
    pub(super) fn new(
        seat: String,
        settings: Settings,
        roots: Option<Vec<u8>>,
        set: Set,
        scripts: Arc<Scripts>,
    ) -> Option<Self> {
        let to = match &settings.servers {
            Servers::One(place) => To::Place(place.clone()),
            Servers::Sentinel { .. } | Servers::Cluster(_) => return None,
        };
        let settings = Arc::new(settings);
        let dial = Dial::new(to, Arc::clone(&settings), roots);
        let links = (0..settings.connections).map(|_| Link::new(dial.clone()));
        Some(Self {
            seat,
            set,
            clock: SystemClock::new(),
            time: ServerTime::default(),
            watch: Watch::default(),
            links: links.collect(),
            ear: Ear::new(dial.clone()),
            dial,
            prefix: format!("{}:q:", settings.prefix).into_bytes(),
            identity: format!("{}:quorum", settings.prefix).into_bytes(),
            scripts,
            unfit: Mutex::new(Some(Fault::Away("not checked yet".to_owned()))),
            questions: Semaphore::new(QUESTIONS_MAX),
        })
    }

    /// Who it is, and whether it still is what it was.
    pub(super) async fn look_at(&self) -> Result<Identity, Fault> {
        let (before, asked) = (self.watch.last(), self.clock.now());
        let identity = self.identify(&self.set.members, &Deed::Read).await?;
        self.watch.saw(before, &identity, asked, self.clock.now());
        Ok(identity)
    }

    /// Lets it vote, or not.
    pub(super) fn judge(&self, unfit: Option<Fault>) {
        *lock(&self.unfit) = unfit;
    }

    pub(super) fn unfit(&self) -> Option<Fault> {
        lock(&self.unfit).clone()
    }

    /// Asks something that is no vote.
    pub(super) async fn ask(&self, commands: Pipeline) -> Result<Vec<Value>, Fault> {
        let answers = self.send(&self.links[0], &commands).await?;
        match answers.iter().find_map(refusal) {
            Some(trouble) => Err(fault(&trouble)),
            None => Ok(answers),
        }
    }

    /// Runs a script.
    pub(super) async fn run(
        &self,
        step: &Step,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Vec<Value>, Fault> {
        let link = &self.links[lane(keys[0], self.links.len())];
        let mut answer = self.one(link, step.call(keys, args)).await?;
        if refusal(&answer).is_some_and(|it| it.is_refusal_with("NOSCRIPT")) {
            answer = self.one(link, step.call_in_full(keys, args)).await?;
        }
        if let Value::Array(parts) = answer {
            return Ok(parts);
        }
        Err(fault(&refusal(&answer).unwrap_or(Trouble::Odd)))
    }

    async fn one(&self, link: &Link, command: Cmd) -> Result<Value, Fault> {
        let mut commands = Pipeline::with_capacity(1);
        commands.add_command(command);
        let answers = self.send(link, &commands).await?;
        answers
            .into_iter()
            .next()
            .ok_or_else(|| fault(&Trouble::Odd))
    }

    /// Every question may be repeated: a connection that was idle may just have been cut.
    async fn send(&self, link: &Link, commands: &Pipeline) -> Result<Vec<Value>, Fault> {
        let Ok(_question) = self.questions.try_acquire() else {
            let why = "too many questions wait for the server";
            return Err(Fault::Away(why.to_owned()));
        };
        let mut asked = link.ask(commands).await;
        if asked == Err(Trouble::Broken) {
            asked = link.ask(commands).await;
        }
        asked.map_err(|trouble| fault(&trouble))
    }

    /// The server's clock shows this now.
    pub(super) fn heard(&self, date: Duration) {
        self.time.heard(date, self.clock.now());
    }

    fn key(&self, name: &[u8]) -> Vec<u8> {
        let mut key = self.prefix.clone();
        key.extend_from_slice(name);
        key
    }
}

#[async_trait]
impl Acceptor for Member {
    async fn prepare(&self, ask: &Prepare) -> Result<Prepared, Fault> {
        let step = match ask.may_be_full {
            true => &self.scripts.prepare_new,
            false => &self.scripts.prepare,
        };
        let only_if_new: &[u8] = if ask.only_if_new { b"1" } else { b"" };
        let args: [&[u8]; 2] = [ask.ballot.as_bytes(), only_if_new];
        let told = self.vote(step, &ask.key, ask.epoch, &args).await?;
        match told.first() {
            Some(Value::Int(VOTED)) => Ok(Prepared::Promised(seen(&told)?)),
            Some(Value::Int(TOLD)) => Ok(Prepared::Told(seen(&told)?)),
            Some(Value::Int(REFUSED)) => match ballot(told.get(2))? {
                Some(ballot) => Ok(Prepared::Refused(ballot)),
                None => Err(odd()),
            },
            Some(_) | None => Err(odd()),
        }
    }

    async fn accept(&self, ask: &Accept) -> Result<Accepted, Fault> {
        let step = match ask.may_be_full {
            true => &self.scripts.accept_new,
            false => &self.scripts.accept,
        };
        let keep_for = ask.keep_for.map(|it| millis(it).to_string());
        let keep_for = keep_for.unwrap_or_default();
        let next: &[u8] = ask.next.as_ref().map_or(&[], |next| next.as_bytes());
        let wake: &[u8] = if ask.wake { b"1" } else { b"" };
        let args: [&[u8]; 5] = [
            ask.ballot.as_bytes(),
            &ask.value,
            keep_for.as_bytes(),
            next,
            wake,
        ];
        let told = self.vote(step, &ask.key, ask.epoch, &args).await?;
        match told.first() {
            Some(Value::Int(VOTED)) => Ok(Accepted::Yes),
            Some(Value::Int(REFUSED)) => Ok(Accepted::No(ballot(told.get(2))?)),
            Some(_) | None => Err(odd()),
        }
    }

    async fn look(&self, ask: &Look) -> Result<Seen, Fault> {
        let look = &self.scripts.look;
        seen(&self.vote(look, &ask.key, ask.epoch, &[]).await?)
    }

    async fn names(&self, epoch: u64, from: Option<Cursor>) -> Result<Names, Fault> {
        if let Some(unfit) = self.unfit() {
            return Err(unfit);
        }
        let mut scan = Cmd::new();
        scan.arg("SCAN").arg(from.unwrap_or_else(|| b"0".to_vec()));
        scan.arg("MATCH")
            .arg(crate::scan::literal(&self.prefix, b"*"));
        scan.arg("COUNT").arg(KEYS_AT_ONCE);
        let mut commands = Pipeline::new();
        commands.add_command(scan);
        let answers = self.ask(commands).await?;
        let [Value::Array(page)] = &answers[..] else {
            return Err(odd());
        };
        let [Value::BulkString(cursor), Value::Array(keys)] = &page[..] else {
            return Err(odd());
        };
        // It had all that it voted for when it said so, if it still votes.
        self.look(&nothing(epoch)).await?;
        let name = |key| Some(bytes(key)?.strip_prefix(&self.prefix[..])?.to_vec());
        Ok(Names {
            keys: keys.iter().filter_map(name).collect(),
            next: Some(cursor.clone()).filter(|cursor| cursor != b"0"),
        })
    }

    async fn listen(&self, key: &Arc<[u8]>) -> Result<Box<dyn Bell>, Fault> {
        let listening = self.ear.listen(self.key(key), false).await;
        match listening {
            Ok(listening) => Ok(Box::new(Rings(listening))),
            Err(trouble) => Err(fault(&trouble)),
        }
    }

    async fn ping(&self) -> Result<(), Fault> {
        self.look(&nothing(self.set.epoch.get())).await.map(drop)
    }
}

struct Rings(Listening);

#[async_trait]
impl Bell for Rings {
    async fn rung(&mut self) {
        self.0.rung().await;
    }
}

/// A look at a register that is never there.
fn nothing(epoch: u64) -> Look {
    let key = Arc::from(&b"ping"[..]);
    Look { key, epoch }
}

/// All questions about a key take the same connection.
fn lane(key: &[u8], lanes: usize) -> usize {
    let sum = |sum: usize, byte: &u8| sum.wrapping_mul(31).wrapping_add(usize::from(*byte));
    key.iter().fold(0, sum) % lanes
}
