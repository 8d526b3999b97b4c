//! Histories written by hand, in milliseconds. Every call of a story is for key 7 unless it says
//! otherwise, claims once under a token of its own, and has a lease of a second.

use std::collections::BTreeMap;

use onlyonce_core::Reason;
use onlyonce_testkit::history::log::{
    Ask, CallId, Ending, Entry, Fault, Heard, Reply, Seen, SeenState, Short, Terms, What,
};
use onlyonce_testkit::history::{History, Log, Report, check};

/// Node and number: the call, its token and what its run says are named by it.
pub(super) type Name = (u16, u32);

pub(super) const KEY: u32 = 7;

#[derive(Default)]
pub(super) struct Story {
    workers: BTreeMap<u16, Vec<Entry>>,
    driver: Vec<Entry>,
    asked: BTreeMap<Name, (u32, u8)>,
    verbs: u64,
}

/// What a call of a story asks for.
pub(super) struct Asks {
    pub(super) key: u32,
    pub(super) payload: u8,
    pub(super) hold: bool,
    pub(super) keep: u64,
    pub(super) by_hand: bool,
    pub(super) sweep: bool,
}

pub(super) const PLAIN: Asks = Asks {
    key: KEY,
    payload: 0,
    hold: false,
    keep: 3_600_000,
    by_hand: false,
    sweep: false,
};

pub(super) fn id((node, number): Name) -> CallId {
    CallId {
        node,
        life: 0,
        number,
    }
}

pub(super) fn token((node, number): Name) -> Short {
    Short(u64::from(node) << 56 | u64::from(number) << 48)
}

impl Story {
    /// Three workers that are there from the start.
    pub(super) fn new() -> Self {
        let mut story = Self::default();
        for node in 0..3 {
            let opened = What::Opened {
                node,
                life: 0,
                wall: 0,
            };
            story.note(0, node, opened);
        }
        story
    }

    pub(super) fn report(self) -> Report {
        let logs = self.workers.into_values().chain([self.driver]);
        check(&History {
            logs: logs.map(Log::new).collect(),
        })
    }

    pub(super) fn note(&mut self, ms: u64, node: u16, what: What) -> &mut Self {
        let entry = Entry {
            at: ms * 1000,
            what,
        };
        self.workers.entry(node).or_default().push(entry);
        self
    }

    pub(super) fn fault(&mut self, ms: u64, fault: Fault) -> &mut Self {
        let what = What::Fault(fault);
        self.driver.push(Entry {
            at: ms * 1000,
            what,
        });
        self
    }

    pub(super) fn killed(&mut self, ms: u64, node: u16) -> &mut Self {
        self.fault(ms, Fault::Kill { node, life: 0 })
            .fault(ms + 1, Fault::Killed { node, life: 0 })
    }

    pub(super) fn calls(&mut self, ms: u64, name: Name, asks: &Asks) -> &mut Self {
        self.asked.insert(name, (asks.key, asks.payload));
        let terms = Terms {
            lease: 1000,
            keep: asks.keep,
            hold: asks.hold,
            patience: 2000,
            execution: 2500,
        };
        let called = What::Called {
            call: id(name),
            key: asks.key,
            payload: asks.payload,
            terms,
            by_hand: asks.by_hand,
            sweep: asks.sweep,
        };
        self.note(ms, name.0, called)
    }

    /// What the run of a call says.
    pub(super) fn word(&self, name: Name) -> String {
        let (key, payload) = self.asked[&name];
        format!("{key}/{payload}/{}", id(name))
    }

    pub(super) fn sends(&mut self, ms: u64, name: Name, ask: Ask) -> u64 {
        self.verbs += 1;
        let verb = self.verbs;
        let token = token(name);
        self.note(ms, name.0, What::Sent { verb, token, ask });
        verb
    }

    /// A verb, sent at one moment and replied to at another.
    pub(super) fn verb(&mut self, ms: (u64, u64), name: Name, ask: Ask, reply: Reply) -> &mut Self {
        let verb = self.sends(ms.0, name, ask);
        self.note(ms.1, name.0, What::Replied { verb, reply })
    }

    pub(super) fn claims(&mut self, ms: (u64, u64), name: Name, reply: Reply) -> &mut Self {
        self.verb(ms, name, Ask::Claim { call: id(name) }, reply)
    }

    pub(super) fn is_granted(&mut self, ms: (u64, u64), name: Name) -> &mut Self {
        let reply = Reply::Granted {
            attempt: 1,
            overtook: None,
        };
        self.claims(ms, name, reply)
    }

    pub(super) fn takes_over(&mut self, ms: (u64, u64), name: Name, from: Name) -> &mut Self {
        let reply = Reply::Granted {
            attempt: 2,
            overtook: Some(id(from)),
        };
        self.claims(ms, name, reply)
    }

    pub(super) fn starts(&mut self, ms: u64, name: Name) -> &mut Self {
        let started = What::Started {
            call: id(name),
            token: Some(token(name)),
            attempt: 1,
        };
        self.note(ms, name.0, started)
    }

    pub(super) fn ends(&mut self, ms: u64, name: Name, storable: bool) -> &mut Self {
        let said = self.word(name);
        self.ends_as(ms, name, Ending::Finished { said, storable })
    }

    pub(super) fn ends_as(&mut self, ms: u64, name: Name, ending: Ending) -> &mut Self {
        let call = id(name);
        self.note(ms, name.0, What::Ended { call, ending })
    }

    pub(super) fn completes(&mut self, ms: (u64, u64), name: Name, reply: Reply) -> &mut Self {
        self.completes_for(ms, name, 3_600_000, reply)
    }

    pub(super) fn completes_for(
        &mut self,
        ms: (u64, u64),
        name: Name,
        keep: u64,
        reply: Reply,
    ) -> &mut Self {
        let said = self.word(name);
        self.verb(ms, name, Ask::Complete { said, keep }, reply)
    }

    pub(super) fn hears(&mut self, ms: u64, name: Name, heard: Heard) -> &mut Self {
        let call = id(name);
        self.note(ms, name.0, What::Heard { call, heard })
    }

    pub(super) fn hears_own(&mut self, ms: u64, name: Name, stored: bool) -> &mut Self {
        let said = self.word(name);
        self.hears(ms, name, Heard::Ran { said, stored })
    }

    pub(super) fn hears_of(&mut self, ms: u64, name: Name, maker: Name, stored: bool) -> &mut Self {
        let said = self.word(maker);
        let heard = Heard::Replayed {
            said,
            original: Some(id(maker)),
            stored,
        };
        self.hears(ms, name, heard)
    }

    pub(super) fn is_refused(&mut self, ms: u64, name: Name, reason: Reason) -> &mut Self {
        self.hears(ms, name, Heard::Refused(reason.name().to_owned()))
    }

    /// A record as a reply shows it.
    pub(super) fn seen(&self, holder: Name, state: SeenState) -> Seen {
        Seen {
            token: token(holder),
            payload: self.asked[&holder].1,
            call: Some(id(holder)),
            state,
        }
    }

    pub(super) fn finished(&self, holder: Name) -> Seen {
        self.seen(holder, SeenState::Finished(self.word(holder)))
    }

    /// A call from its first word to its stored answer, in 20 ms.
    pub(super) fn runs(&mut self, ms: u64, name: Name, asks: &Asks) -> &mut Self {
        self.calls(ms, name, asks)
            .is_granted((ms + 1, ms + 2), name)
            .starts(ms + 3, name)
            .ends(ms + 10, name, true)
            .completes_for((ms + 11, ms + 12), name, asks.keep, Reply::Stored)
            .hears_own(ms + 13, name, true)
    }

    /// A call that is answered with what `maker` stored, in 5 ms.
    pub(super) fn replays(&mut self, ms: u64, name: Name, maker: Name, asks: &Asks) -> &mut Self {
        let seen = self.finished(maker);
        self.calls(ms, name, asks)
            .claims((ms + 1, ms + 2), name, Reply::Taken(seen))
            .hears_of(ms + 3, name, maker, true)
    }

    /// A call whose handler has started, after 5 ms.
    pub(super) fn begins(&mut self, ms: u64, name: Name, asks: &Asks) -> &mut Self {
        self.calls(ms, name, asks)
            .is_granted((ms + 1, ms + 2), name)
            .starts(ms + 3, name)
    }
}
