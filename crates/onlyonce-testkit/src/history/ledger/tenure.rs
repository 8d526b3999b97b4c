//! One claim with all its verbs: when it can have been granted, prolonged, finished and given up,
//! as far as replies prove it. A verb without a reply proves nothing.

use super::{At, Micros, SLACK, Seen, Short, Window};
use crate::history::clock::micros;
use crate::history::log::{Ask, CallId, Reply, SeenState};

pub(crate) struct Tenure<'h> {
    pub(crate) token: Short,
    pub(crate) call: CallId,
    pub(crate) key: u32,
    pub(crate) payload: u8,
    pub(crate) hold: bool,
    pub(crate) lease: Micros,
    pub(crate) keep: Micros,
    pub(crate) life: usize,
    /// In the order in which they were sent.
    pub(crate) deeds: Vec<Deed<'h>>,
    /// Live leases of this claim that somebody saw: when asked, and how much was left then.
    pub(crate) sightings: Vec<(At, Micros)>,
    /// When a finished record of this claim was first known to be there.
    pub(crate) seen_finished: Option<At>,
}

/// A verb and its reply.
pub(crate) struct Deed<'h> {
    pub(crate) ask: &'h Ask,
    pub(crate) sent: At,
    pub(crate) replied: Option<(At, &'h Reply)>,
}

impl Deed<'_> {
    /// Whether the store may have acted on it without anyone knowing.
    pub(crate) fn is_in_doubt(&self) -> bool {
        matches!(self.replied, None | Some((_, Reply::Failed)))
    }

    /// The record a reply shows, if it shows one.
    pub(crate) fn seen(&self) -> Option<&Seen> {
        match self.replied {
            Some((_, Reply::Taken(seen) | Reply::Found(seen))) => Some(seen),
            Some(_) | None => None,
        }
    }
}

/// A claim was granted: not before `from`, not after `to`.
#[derive(Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) from: At,
    pub(crate) to: At,
    pub(crate) attempt: u32,
    pub(crate) overtook: Option<CallId>,
}

/// A claim was finished: not before `from`, and known to be so at `to`.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    pub(crate) from: At,
    pub(crate) to: At,
    pub(crate) keep: Micros,
}

impl Finish {
    /// Whether its record may have been gone at `at`.
    pub(crate) fn may_have_expired(&self, at: Micros) -> bool {
        at.saturating_add(SLACK) >= self.from.us.saturating_add(self.keep)
    }

    /// Whether its record must have been gone at `at`. One of several servers that hung meanwhile has
    /// it, and counts, from when it goes on.
    pub(crate) fn has_expired(&self, at: Micros, store_faults: &[Window]) -> bool {
        let finished = Window {
            from: self.from.us,
            to: self.to.us,
        };
        let met = store_faults.iter().filter(|it| it.meets(finished));
        let counted_from = met.map(|it| it.to).fold(self.to.us, Micros::max);
        at > counted_from.saturating_add(self.keep).saturating_add(SLACK)
    }
}

impl<'h> Tenure<'h> {
    pub(crate) fn granted(&self) -> Option<Grant> {
        let claims = || {
            let deeds = self.deeds.iter();
            deeds.filter(|it| matches!(it.ask, Ask::Claim { .. }))
        };
        let (at, sent, attempt, overtook) = claims().find_map(|it| match it.replied {
            Some((at, Reply::Granted { attempt, overtook })) => {
                Some((at, it.sent, *attempt, *overtook))
            }
            Some(_) | None => None,
        })?;
        // One whose reply was lost may have been granted already, and this one its repetition.
        let doubtful = claims().find(|it| it.is_in_doubt() && it.sent.us <= sent.us);
        Some(Grant {
            from: doubtful.map_or(sent, |it| it.sent),
            to: at,
            attempt,
            overtook,
        })
    }

    /// Whether it may have been granted, known or not.
    pub(crate) fn may_be_granted(&self) -> bool {
        self.deeds.iter().any(|it| {
            matches!(it.ask, Ask::Claim { .. })
                && (it.is_in_doubt() || matches!(it.replied, Some((_, Reply::Granted { .. }))))
        })
    }

    /// The verbs that prolonged the lease for certain: it lasts a lease from when each was sent,
    /// at least.
    pub(crate) fn prolonged(&self) -> impl Iterator<Item = (At, At)> {
        self.deeds.iter().filter_map(|it| match it.replied? {
            (at, Reply::Granted { .. } | Reply::Kept) => Some((it.sent, at)),
            (_, _) => None,
        })
    }

    /// Until when its lease lasts at least, by everything that proves it; what proves it.
    pub(crate) fn leased_until(&self) -> Option<(Micros, At)> {
        let prolonged = self
            .prolonged()
            .map(|(sent, _)| (sent.us.saturating_add(self.lease), sent));
        // Of several servers, those that hung count from when they took the claim: a majority with them
        // shows more of the lease than was ever given, which proves nothing of what others say.
        let most = self.leased_at_most().map(|most| most + SLACK);
        let seen = self.sightings.iter().map(|(at, left)| (at.us + left, *at));
        let seen = seen.filter(|(until, _)| most.is_none_or(|most| *until <= most));
        prolonged.chain(seen).max_by_key(|(until, _)| *until)
    }

    /// Until when its lease can last; nothing if a verb that may have prolonged it has no reply.
    fn leased_at_most(&self) -> Option<Micros> {
        let mut deeds = self.deeds.iter();
        let is_open = deeds.any(|it| {
            let prolongs = matches!(it.ask, Ask::Claim { .. } | Ask::Renew);
            prolongs && it.is_in_doubt()
        });
        if is_open {
            return None;
        }
        let ends = self
            .prolonged()
            .map(|(_, heard)| heard.us.saturating_add(self.lease));
        ends.max()
    }

    /// Whether its record may have been gone at `at`, though nobody heard that it was finished: the
    /// reply to its completion may have been lost, and what was stored is kept from then on.
    pub(crate) fn may_have_expired(&self, at: Micros) -> bool {
        let until = self.leased_until().map_or(0, |(until, _)| until);
        let is_past = |until: Micros| at.saturating_add(SLACK) >= until;
        let unheard = |deed: &Deed<'_>| match deed.ask {
            Ask::Complete { keep, .. } => {
                deed.is_in_doubt() && is_past(deed.sent.us.saturating_add(micros(*keep)))
            }
            Ask::Claim { .. } | Ask::Renew | Ask::GiveBack | Ask::Doubt => false,
        };
        is_past(until.saturating_add(self.keep)) || self.deeds.iter().any(unheard)
    }

    pub(crate) fn finished(&self) -> Option<Finish> {
        let (from, keep) = self.deeds.iter().find_map(|it| match it.ask {
            Ask::Complete { keep, .. } => Some((it.sent, micros(*keep))),
            Ask::Claim { .. } | Ask::Renew | Ask::GiveBack | Ask::Doubt => None,
        })?;
        let stored = self.deeds.iter().filter_map(|it| match it.replied? {
            (at, Reply::Stored) => Some(at),
            (_, _) => None,
        });
        let to = stored.chain(self.seen_finished).min_by_key(|at| at.us)?;
        Some(Finish { from, to, keep })
    }

    /// When it may first have been given back as never run.
    pub(crate) fn given_back(&self) -> Option<At> {
        self.ended_by(&Ask::GiveBack)
    }

    /// When it may first have been ended as unknown.
    pub(crate) fn doubted(&self) -> Option<At> {
        self.ended_by(&Ask::Doubt)
    }

    /// A release that found something else changed nothing.
    fn ended_by(&self, ask: &Ask) -> Option<At> {
        let mut deeds = self.deeds.iter().filter(|it| it.ask == ask);
        let ended = deeds.find(|it| !matches!(it.replied, Some((_, Reply::Found(_)))));
        ended.map(|it| it.sent)
    }

    /// Whether nothing of it needs to be left at `at`.
    pub(crate) fn may_be_gone(&self, at: Micros) -> bool {
        if self.given_back().is_some_and(|sent| sent.us <= at) {
            return true;
        }
        match self.finished() {
            Some(finish) => finish.may_have_expired(at),
            None => self.leased_until().is_some() && self.may_have_expired(at),
        }
    }

    pub(crate) fn note_seen(&mut self, seen: &Seen, sent: At, replied: At) {
        match seen.state {
            SeenState::Pending(0) | SeenState::Unknown => {}
            SeenState::Pending(left) => self.sightings.push((sent, micros(left))),
            SeenState::Finished(_) => {
                let first = self.seen_finished.get_or_insert(replied);
                if replied.us < first.us {
                    *first = replied;
                }
            }
        }
    }
}
