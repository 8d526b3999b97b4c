//! What becomes of a call: whether it is covered, under which key, and how it runs once.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onlyonce_core::engine::Who;
use onlyonce_core::{Answer, Execution, Key, Origin, Outcome, Reason, Refusal};
use tokio::sync::oneshot;

use super::Session;
use crate::answer::{Audience, outcome, refused, repeated};
use crate::call::{SentKey, ToolCall};
use crate::members::{Members, raw};
use crate::message::{Id, Reply, request};
use crate::pending::lock;

/// Pages of a list of tools that we ask for ourselves.
const PAGES_MAX: usize = 100;
const LIST_WAIT_MAX: Duration = Duration::from_secs(10);

impl Session {
    /// Runs the call, or answers it from its record.
    pub(super) async fn once(self: &Arc<Self>, call: ToolCall) -> Reply {
        let (key, is_derived) = match self.key(&call) {
            Ok(key) => key,
            Err(refusal) => return refused(&refusal, &self.audience(&call, false)),
        };
        let audience = self.audience(&call, is_derived);
        let mut scope = self.engine.scope().with("mcp", &self.rules.server);
        scope = scope.with("tool", &call.tool);
        if is_derived {
            scope = scope.with("derived", "");
        }
        let who = Who::doing(call.tool.as_str());
        let mut keyed = self
            .engine
            .call(&scope, &key, call.fingerprint(), &self.policy, who);
        if let (true, Some(derive)) = (is_derived, &self.rules.derive) {
            keyed = keyed.keep_for(derive.within);
        }

        let own = Arc::new(OnceLock::new());
        let (session, kept) = (Arc::clone(self), Arc::clone(&own));
        let work = move |execution| async move { session.run(&call, execution, &kept).await };
        match self.engine.once(keyed, work).await {
            Answer::Ran {
                response,
                as_returned,
                ..
            } => match own.get() {
                // What the tool said, though it may be too large to be stored.
                Some(reply) if as_returned => Reply::clone(reply),
                Some(_) | None => repeated(&response, is_derived),
            },
            Answer::Replayed(replay) if replay.response.origin == Origin::Handler => {
                repeated(&replay.response, is_derived)
            }
            Answer::Replayed(_) => refused(&Refusal::new(Reason::ResponseTooLarge), &audience),
            Answer::Refused(refusal) => refused(&refusal, &audience),
        }
    }

    pub(super) fn audience(&self, call: &ToolCall, is_derived: bool) -> Audience {
        Audience {
            is_derived,
            says_complete: call.says_complete(),
            on_lapse: self.rules.on_lapse,
        }
    }

    /// The key, and whether it is derived.
    fn key(&self, call: &ToolCall) -> Result<(Key, bool), Refusal> {
        let bad = |why: &dyn std::fmt::Display| Refusal::new(Reason::BadKey).because(why);
        let (text, is_derived) = match (&call.key, &self.rules.derive) {
            (SentKey::Text(text), _) => (text.clone(), false),
            (SentKey::NotText, _) => return Err(bad(&"it is not text")),
            (SentKey::Nothing | SentKey::Null, Some(derive)) => {
                let conversation = call.conversation.as_deref();
                let conversation = conversation.unwrap_or(&derive.conversation);
                let key = call.derived_key(conversation);
                (key.ok_or_else(|| bad(&"none can be derived"))?, true)
            }
            (SentKey::Nothing | SentKey::Null, None) => {
                return Err(Refusal::new(Reason::MissingKey));
            }
        };
        let key = Key::new(&text, &self.policy.key).map_err(|error| bad(&error))?;
        Ok((key, is_derived))
    }

    /// Sends the call to the server and waits for its reply.
    async fn run(&self, call: &ToolCall, execution: Execution, own: &OnceLock<Reply>) -> Outcome {
        let id = self.next_id();
        let Some(answered) = self.ask(&id, call.message_as(&id)).await else {
            return Outcome::NotRun;
        };
        // The server went without a word: it may have done everything but answer.
        let Ok(reply) = answered.await else {
            return Outcome::Unknown;
        };
        let outcome = outcome(&reply, self.rules.errors, &self.policy.limits, &execution);
        drop(own.set(reply));
        outcome
    }

    /// Whether a call is of a tool that is covered. A tool that even the server's list does not know
    /// is: its call may do something, and has a key.
    pub(super) async fn covers(&self, call: &ToolCall) -> bool {
        let known = || lock(&self.catalog).covers(&call.tool);
        if let Some(is_covered) = known() {
            return is_covered;
        }
        let _one_at_a_time = self.listing.lock().await;
        if known().is_none() {
            let listing = self.list_tools(call.meta.as_ref());
            // A server that gives no list has no say in what is covered.
            drop(tokio::time::timeout(LIST_WAIT_MAX, listing).await);
        }
        known().unwrap_or_else(|| self.rules.tools.include(&call.tool))
    }

    /// Asks the server for its tools, as the client would.
    async fn list_tools(&self, meta: Option<&Members>) -> Option<()> {
        let mut params = Members::default();
        if let Some(mut meta) = meta.cloned() {
            meta.take("progressToken");
            params.set("_meta", meta.to_raw());
        }
        for _ in 0..PAGES_MAX {
            let id = self.next_id();
            let message = request(&id, "tools/list", &params);
            let Ok(Reply::Result(list)) = self.ask(&id, message).await?.await else {
                return None;
            };
            let next = Members::of(&list).and_then(|list| list.text("nextCursor"));
            lock(&self.catalog).learn(list, &self.rules.tools);
            params.set("cursor", raw(&next?));
        }
        None
    }

    /// Sends a request of ours; nothing if it certainly did not reach the server.
    async fn ask(&self, id: &Id, message: String) -> Option<oneshot::Receiver<Reply>> {
        let answered = self.pending.ask(id)?;
        if self.to_server.send(message).await.is_err() {
            self.pending.asked(id);
            return None;
        }
        Some(answered)
    }
}
