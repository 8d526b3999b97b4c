//! What becomes of a call: whether it is covered, under which key, and how it runs once.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::engine::{Call, Who};
use onlyonce_core::{Answer, Execution, Finding, Key, Origin, Outcome, Reason, Reconcile, Refusal};
use serde_json::json;
use tokio::sync::oneshot;

use super::Session;
use crate::answer::{Audience, not_verifiable, outcome, refused, repeated};
use crate::call::ToolCall;
use crate::keys::{self, KeyOrigin};
use crate::members::{Members, raw};
use crate::message::{INITIALIZE, INITIALIZED, Id, Reply, cancelled, notification, request};
use crate::pending::{CallNumber, Heard, lock};
use crate::verify::{About, Verify};

/// Pages of a list of tools that we ask for ourselves.
const PAGES_MAX: usize = 100;
const LIST_WAIT_MAX: Duration = Duration::from_secs(10);
/// The revision of the protocol that sessions of our own begin with; a server may name another one.
const HANDSHAKE: &str = "2025-11-25";
/// How long a server that was told to cancel a call may still answer it. It need not.
const STOP_WAIT_MAX: Duration = Duration::from_secs(10);

impl Session {
    /// Runs the call, or answers it from its record.
    pub(super) async fn once(self: &Arc<Self>, number: CallNumber, call: ToolCall) -> Reply {
        let (key, origin) = match keys::choose(&call, &self.rules, &self.policy.key) {
            Ok(chosen) => chosen,
            Err(refusal) => return refused(&refusal, &self.audience(&call, KeyOrigin::Sent)),
        };
        let audience = self.audience(&call, origin);
        if let Some(verify) = self.rules.verify(&call.tool)
            && !verify.can_ask(&call, key.expose())
        {
            return not_verifiable(verify.asks(), audience.says_complete);
        }
        let call = Arc::new(call);
        let keyed = self.keyed(&call, &key, origin);
        let session = Arc::clone(self);
        let work = move |execution| async move { session.run(number, &call, execution).await };
        let (answer, own) = self.engine.once_returning(keyed, work).await;
        match answer {
            Answer::Ran {
                response,
                as_returned,
                ..
            } => match own.flatten() {
                // What the tool said, though it may be too large to be stored.
                Some(reply) if as_returned => reply,
                Some(_) | None => repeated(&response, origin),
            },
            Answer::Replayed(replay) if replay.response.origin == Origin::Handler => {
                repeated(&replay.response, origin)
            }
            Answer::Replayed(_) => refused(&Refusal::new(Reason::ResponseTooLarge), &audience),
            Answer::Refused(refusal) => refused(&refusal, &audience),
        }
    }

    fn keyed(self: &Arc<Self>, call: &Arc<ToolCall>, key: &Key, origin: KeyOrigin) -> Call {
        let mut scope = self.engine.scope().with("mcp", &self.rules.server);
        scope = scope.with("tool", &call.tool);
        if let Some(caller) = &self.caller {
            scope = scope.with("caller", caller.as_bytes());
        }
        if let Some(mark) = origin.mark() {
            scope = scope.with(mark, "");
        }
        let who = Who::doing(self.rules.operation(&call.tool));
        let mut keyed = self
            .engine
            .call(&scope, key, call.fingerprint(), &self.policy, who);
        if let (KeyOrigin::Derived, Some(derive)) = (origin, &self.rules.derive) {
            keyed = keyed.keep_for(derive.within);
        }
        let Some(verify) = self.rules.verify(&call.tool).cloned() else {
            return keyed;
        };
        let (session, call) = (Arc::clone(self), Arc::clone(call));
        keyed.reconcile(Reconcile::new(move |execution| {
            let (session, call, verify) = (Arc::clone(&session), Arc::clone(&call), verify.clone());
            async move { session.look(&call, &verify, &execution).await }
        }))
    }

    pub(super) fn audience(&self, call: &ToolCall, origin: KeyOrigin) -> Audience {
        Audience {
            origin,
            says_complete: call.says_complete(),
            on_lapse: self.rules.on_lapse,
        }
    }

    /// Sends the call to the server and waits for its reply.
    async fn run(
        &self,
        number: CallNumber,
        call: &ToolCall,
        execution: Execution,
    ) -> (Outcome, Option<Reply>) {
        let stop = self.pending.stopping(number);
        if stop.is_cancelled() {
            return (Outcome::NotRun, None);
        }
        let id = self.next_id();
        let message = match self.rules.verify(&call.tool) {
            Some(_) => call.identified(&execution).message_as(&id),
            None => call.message_as(&id),
        };
        let Some(answered) = self.ask(&id, message).await else {
            return (Outcome::NotRun, None);
        };
        if self.pending.sent(number, &id) {
            self.tell_server(cancelled(&id)).await;
        }
        let given_up = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_WAIT_MAX).await;
        };
        let heard = tokio::select! {
            heard = answered => heard.ok(),
            () = given_up => None,
        };
        let reply = match heard {
            Some(Heard::Reply(reply)) => reply,
            Some(Heard::NotSent) => return (Outcome::NotRun, None),
            // The server went without a word, or was told to stop and owes no answer: it may have done
            // everything but answer.
            None => {
                self.pending.asked(&id);
                if !self.pending.is_server_gone() {
                    // The end of its stream does not end the tool, nor need the word to stop.
                    execution.may_go_on();
                }
                return (Outcome::Unknown, None);
            }
        };
        let outcome = outcome(&reply, self.rules.errors, &self.policy.limits, &execution);
        (outcome, Some(reply))
    }

    /// Asks the verifying tool whether an earlier attempt at a call happened.
    async fn look(&self, call: &ToolCall, verify: &Verify, execution: &Execution) -> Finding {
        let operation = execution.operation().to_string();
        let about = About {
            call,
            key: execution.key().expose(),
            operation: &operation,
        };
        let id = self.next_id();
        let message = verify.question(&about, &id);
        self.find(verify, &id, message).await
    }

    /// The same about a call of which nothing is known but its operation's id.
    pub(crate) async fn look_at(&self, operation: &str, verify: &Verify) -> Finding {
        let id = self.next_id();
        let message = verify.question_of(operation, &id);
        self.find(verify, &id, message).await
    }

    async fn find(&self, verify: &Verify, id: &Id, question: Option<String>) -> Finding {
        let Some(question) = question else {
            return Finding::CannotTell;
        };
        let Some(answered) = self.ask(id, question).await else {
            return Finding::CannotTell;
        };
        match answered.await {
            Ok(Heard::Reply(reply)) => verify.read(Some(&reply)),
            Ok(Heard::NotSent) | Err(_) => Finding::CannotTell,
        }
    }

    /// Begins with the server as a client does that has nothing to offer; nothing if the server will not.
    pub(crate) async fn begin(&self) -> Option<()> {
        let id = self.next_id();
        let mut params = Members::default();
        params.set("protocolVersion", raw(HANDSHAKE));
        params.set("capabilities", raw(&json!({})));
        let version = env!("CARGO_PKG_VERSION");
        params.set(
            "clientInfo",
            raw(&json!({"name": "onlyonce", "version": version})),
        );
        let asking = self.ask(&id, request(&id, INITIALIZE, &params)).await?;
        let Ok(Heard::Reply(Reply::Result(_))) = asking.await else {
            return None;
        };
        self.tell_server(notification(INITIALIZED)).await;
        Some(())
    }

    /// Whether a call is of a tool that is covered. A tool that even the server's list does not know
    /// is: its call may do something, and has a key.
    pub(crate) async fn covers(&self, call: &ToolCall) -> bool {
        let known = || lock(&self.catalog).covers(&call.tool);
        if let Some(is_covered) = known() {
            return is_covered;
        }
        let _one_at_a_time = self.listing.lock().await;
        if known().is_none() {
            let listing = self.list_tools(call);
            // A server that gives no list has no say in what is covered.
            drop(tokio::time::timeout(LIST_WAIT_MAX, listing).await);
        }
        known().unwrap_or_else(|| self.rules.tools.include(&call.tool))
    }

    /// Asks the server for its tools, as the client would.
    async fn list_tools(&self, call: &ToolCall) -> Option<()> {
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let id = self.next_id();
            let message = call.list_request(&id, cursor.as_deref());
            let Ok(Heard::Reply(Reply::Result(list))) = self.ask(&id, message).await?.await else {
                return None;
            };
            let next = Members::of(&list).and_then(|list| list.text("nextCursor"));
            lock(&self.catalog).learn(list, &self.rules.tools);
            cursor = Some(next?);
        }
        None
    }

    /// Sends a request of ours; nothing if it certainly did not reach the server.
    async fn ask(&self, id: &Id, message: String) -> Option<oneshot::Receiver<Heard>> {
        let answered = self.pending.ask(id)?;
        if self.to_server.send(message).await.is_err() {
            self.pending.asked(id);
            return None;
        }
        Some(answered)
    }
}
