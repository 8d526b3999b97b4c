//! A question as a vote: only of the server that is meant, in the epoch that is meant, and in time.

use ::redis::Value;
use onlyonce_core::Clock as _;
use onlyonce_quorum::{Deed, Fault, Seat as _, ServerTime};

use super::super::scripts::Step;
use super::Member;
use super::reply::{bytes, date, odd};
use crate::value::millis;

/// What a script says first that did not vote.
const STRANGER: i64 = 3;
const LATE: i64 = 4;

impl Member {
    /// Runs a script on a register, as a vote: the server checks in the same step that it may, in this
    /// epoch, and that it is not too late.
    pub(super) async fn vote(
        &self,
        step: &Step,
        key: &[u8],
        epoch: u64,
        args: &[&[u8]],
    ) -> Result<Vec<Value>, Fault> {
        if let Some(unfit) = self.unfit() {
            return Err(unfit);
        }
        let register = self.key(key);
        let keys: [&[u8]; 2] = [&register, &self.identity];
        let number = epoch.to_string();
        let mut was_behind = false;
        loop {
            let asked = self.clock.now();
            let until = self.time.until(asked).ok_or_else(odd)?;
            let until = millis(until).to_string();
            let mut all: Vec<&[u8]> = vec![
                self.seat.as_bytes(),
                self.set.members.as_bytes(),
                number.as_bytes(),
                until.as_bytes(),
            ];
            all.extend_from_slice(args);
            let told = self.run(step, &keys, &all).await?;
            match told.first() {
                Some(Value::Int(STRANGER)) => match self.stranger(&told, epoch) {
                    Fault::Behind(_) if !was_behind => {
                        was_behind = true;
                        let was = self.set.members.to_string();
                        let deed = Deed::Raise { epoch, was };
                        self.identify(&self.set.members, &deed).await?;
                    }
                    fault => return Err(fault),
                },
                Some(Value::Int(LATE)) => {
                    self.heard(date(&told)?);
                    if !ServerTime::has_jumped(asked, self.clock.now()) {
                        return Err(Fault::late());
                    }
                }
                Some(_) | None => {
                    self.heard(date(&told)?);
                    return Ok(told);
                }
            }
        }
    }

    /// Why a server is not as we thought.
    fn stranger(&self, told: &[Value], epoch: u64) -> Fault {
        let text = |at: usize| told.get(at).and_then(bytes).map(String::from_utf8_lossy);
        let (seat, members) = (text(1).unwrap_or_default(), text(2).unwrap_or_default());
        if seat.is_empty() {
            return Fault::NotAdmitted;
        }
        if seat != self.seat || *members != *self.set.members {
            return Fault::OtherSet(members.into_owned());
        }
        if text(4).as_deref() != Some("yes") {
            return Fault::NotAdmitted;
        }
        match text(3).and_then(|epoch| epoch.parse::<u64>().ok()) {
            Some(its) if its > epoch => Fault::Raised(its),
            Some(its) => Fault::Behind(its),
            None => odd(),
        }
    }
}
