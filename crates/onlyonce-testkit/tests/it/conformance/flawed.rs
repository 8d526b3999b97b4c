//! The memory store with one thing wrong with it: each flaw is a mistake that a store has been
//! seen to make, or one line away from such a mistake.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use onlyonce_core::operate::{Filter, Page, Resolved, StateName, Stats};
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, Lease, MemoryStore, OnLapse, Operate, Record, Release,
    Released, Renewed, Replay, Response, Slot, State, Store, StoreError, Token, async_trait,
};
use onlyonce_testkit::conformance::TestBed;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    ChecksThenSets,
    IgnoresFingerprint,
    RecallsAnything,
    RefusesOwnToken,
    IgnoresHold,
    ForgetsLapsed,
    CompletesForAnyone,
    RefusesLate,
    Overwrites,
    KeepsFromClaim,
    RenewsForAnyone,
    AddsRenewals,
    ReleasesForAnyone,
    RevivesTokens,
    FreesUnknown,
    WakesNobody,
    WakesAlways,
    BodiesAsText,
    HeadersOnce,
    DropsTrailers,
    ExtendsLeases,
    ResolvesLive,
    ResolvesShorter,
    DiscardsAnything,
    SweepsLive,
    CountsOnce,
    LastOfferWins,
    FirstPageAgain,
}

pub(super) struct FlawedBed {
    store: Arc<Flawed>,
}

impl FlawedBed {
    pub(super) fn new(flaw: Flaw) -> Self {
        let sound = MemoryStore::new();
        Self {
            store: Arc::new(Flawed { sound, flaw }),
        }
    }
}

#[async_trait]
impl TestBed for FlawedBed {
    fn name(&self) -> &str {
        "flawed"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

struct Flawed {
    sound: MemoryStore,
    flaw: Flaw,
}

impl Flawed {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    async fn found(&self, slot: &Slot) -> Option<Record> {
        let found = self.sound.get(slot).await;
        found.expect("the memory store always answers")
    }

    /// The lease of whoever holds the slot, if the flaw is to take anyone for the holder.
    async fn lease(&self, flaw: Flaw, lease: &Lease) -> Lease {
        let held = self.found(&lease.slot).await;
        match held.filter(|_| self.has(flaw)) {
            Some(record) => with_token(lease, record.token),
            None => lease.clone(),
        }
    }

    fn spoilt(&self, response: &Arc<Response>) -> Arc<Response> {
        let mut response = Response::clone(response);
        if self.has(Flaw::BodiesAsText) {
            response.body = String::from_utf8_lossy(&response.body).into_owned().into();
        }
        if self.has(Flaw::HeadersOnce) {
            let mut once = HeaderMap::new();
            for (name, value) in &response.headers {
                once.insert(name, value.clone());
            }
            response.headers = once;
        }
        if self.has(Flaw::DropsTrailers) {
            response.trailers = None;
        }
        Arc::new(response)
    }
}

fn with_token(lease: &Lease, token: Token) -> Lease {
    Lease {
        token,
        ..lease.clone()
    }
}

#[async_trait]
impl Store for Flawed {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let mut claim = claim.clone();
        let found = self.found(&claim.slot).await;
        if self.has(Flaw::ChecksThenSets) && found.is_none() {
            tokio::task::yield_now().await;
            self.sound.forget(&claim.slot).await?;
        }
        if self.has(Flaw::IgnoresHold) {
            claim.on_lapse = OnLapse::Rerun;
        }
        if let Some(record) = found {
            if self.has(Flaw::RefusesOwnToken) && record.token == claim.token {
                return Ok(Claimed::Taken(record));
            }
            if self.has(Flaw::IgnoresFingerprint) {
                claim.fingerprint = record.fingerprint;
            }
            if self.has(Flaw::ForgetsLapsed) && record.is_lapsed() {
                self.sound.forget(&claim.slot).await?;
            }
        }
        self.sound.claim(&claim).await
    }

    fn recall(&self, slot: &Slot, fingerprint: &Fingerprint) -> Option<Replay> {
        if self.has(Flaw::RecallsAnything) {
            // What every first claim of the suite means.
            let first = Fingerprint::new(Fingerprint::RECIPE, [1; 32]);
            return self.sound.recall(slot, &first);
        }
        self.sound.recall(slot, fingerprint)
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let lease = self.lease(Flaw::RenewsForAnyone, lease).await;
        let record = self.found(&lease.slot).await;
        let lease_left = match record.map(|record| record.state) {
            Some(State::Pending { lease_left }) if self.has(Flaw::AddsRenewals) => lease_left,
            Some(State::Pending { .. } | State::Done(_) | State::Failed(_) | State::Unknown)
            | None => Duration::ZERO,
        };
        self.sound.renew(&lease, lease_left + lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let lease = self.lease(Flaw::CompletesForAnyone, lease).await;
        let mut keep_for = keep_for;
        if let Some(record) = self.found(&lease.slot).await {
            if self.has(Flaw::RefusesLate) && record.is_lapsed() {
                return Ok(Completed::Found(record));
            }
            if self.has(Flaw::Overwrites) && record.response().is_some() {
                let again = Claim {
                    slot: lease.slot,
                    fingerprint: record.fingerprint,
                    token: lease.token,
                    on_lapse: record.on_lapse,
                    must_last: false,
                    lease_for: lease.lease_for,
                    keep_for,
                    meta: record.meta,
                };
                self.sound.forget(&lease.slot).await?;
                self.sound.claim(&again).await?;
            }
            if self.has(Flaw::KeepsFromClaim) {
                let age = (lease.lease_for + lease.keep_for).saturating_sub(record.keep_left);
                keep_for = keep_for.saturating_sub(age);
            }
        }
        let response = self.spoilt(response);
        self.sound.complete(&lease, &response, keep_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let lease = self.lease(Flaw::ReleasesForAnyone, lease).await;
        if self.has(Flaw::FreesUnknown) {
            return self.sound.release(&lease, Release::NotRun).await;
        }
        if self.has(Flaw::RevivesTokens) && why == Release::NotRun {
            let held = self.found(&lease.slot).await;
            return Ok(match held {
                Some(record) if record.token != lease.token => Released::Found(record),
                Some(_) | None => {
                    self.sound.forget(&lease.slot).await?;
                    Released::Ended
                }
            });
        }
        self.sound.release(&lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        if self.has(Flaw::WakesNobody) {
            tokio::time::sleep(at_most).await;
            return Ok(());
        }
        if self.has(Flaw::WakesAlways) {
            return Ok(());
        }
        self.sound.settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

#[async_trait]
impl Operate for Flawed {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.sound.get(slot).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut page = *page;
        if self.has(Flaw::FirstPageAgain) {
            page.after = None;
        }
        self.sound.list(filter, &page).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.sound.forget(slot).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let found = self.found(slot).await;
        if let Some(record) = found.filter(|_| self.has(Flaw::ExtendsLeases)) {
            let lease = Lease {
                slot: *slot,
                token: record.token,
                fingerprint: record.fingerprint,
                lease_for: extra,
                keep_for: record.keep_left,
                attempt: record.attempt,
            };
            self.sound.renew(&lease, extra).await?;
        }
        self.sound.extend(slot, extra).await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let found = self.found(slot).await;
        let live = found.filter(|record| StateName::of(record) == StateName::Pending);
        if let Some(record) = live.filter(|_| self.has(Flaw::ResolvesLive)) {
            let lease = Lease {
                slot: *slot,
                token: record.token,
                fingerprint: record.fingerprint,
                lease_for: Duration::ZERO,
                keep_for,
                attempt: record.attempt,
            };
            self.sound.release(&lease, Release::Unknown).await?;
        }
        let found = self.found(slot).await;
        let lapsed = found.filter(|record| StateName::of(record) == StateName::Lapsed);
        if let Some(record) = lapsed.filter(|_| self.has(Flaw::ResolvesShorter)) {
            let lease = Lease {
                slot: *slot,
                token: record.token,
                fingerprint: record.fingerprint,
                lease_for: Duration::ZERO,
                keep_for: Duration::MAX,
                attempt: record.attempt,
            };
            self.sound.complete(&lease, response, keep_for).await?;
            return Ok(Resolved::Stored);
        }
        self.sound.resolve(slot, response, keep_for).await
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        if self.has(Flaw::DiscardsAnything) && self.sound.forget(slot).await? {
            return Ok(Resolved::Stored);
        }
        self.sound.discard(slot).await
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        if self.has(Flaw::SweepsLive) {
            let page = Page {
                after: None,
                records_max,
            };
            for (slot, _) in self.sound.list(&Filter::default(), &page).await? {
                self.sound.forget(&slot).await?;
            }
        }
        self.sound.sweep(records_max).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.sound.stats().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.sound.ping().await
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        if self.has(Flaw::CountsOnce) {
            let once: BTreeMap<_, _> = replays.iter().copied().collect();
            let once: Vec<_> = once.into_iter().collect();
            return self.sound.count_replays(&once).await;
        }
        self.sound.count_replays(replays).await
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        if self.has(Flaw::LastOfferWins) {
            return Ok(offer.to_vec());
        }
        self.sound.agree(name, offer).await
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.sound.agreed(name).await
    }
}
