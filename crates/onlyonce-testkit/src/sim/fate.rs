//! What happens to one verb on its way to the store and back.

use onlyonce_core::Token;
use onlyonce_core::event::Verb;

use super::clock::Ms;
use super::dice::Dice;
use super::history::What;
use super::kinds::Fault;
use super::model::Window;
use super::world::State;

/// The longest an ordinary verb or reply is under way.
const LATENCY_MAX: Ms = 3;
/// The longest that anything is late.
const LATE_MAX: Ms = 1500;

#[derive(Default)]
pub(super) struct Fate {
    pub(super) before: Ms,
    pub(super) after: Ms,
    pub(super) request_lost: bool,
    pub(super) reply_lost: bool,
    /// Something is wrong with this verb.
    pub(super) faulty: Option<(Verb, Token)>,
    /// When a copy of it arrives, counted from now.
    pub(super) copy: Option<Ms>,
}

impl Fate {
    pub(super) fn draw(
        state: &mut State,
        process: usize,
        verb: (Verb, Token),
        lease: Ms,
        now: Ms,
    ) -> Self {
        let mut fate = Self {
            before: latency(&mut state.dice),
            after: latency(&mut state.dice),
            ..Self::default()
        };
        fate.be_copied(state, process, verb.0, lease, now);
        if state.dice.chance(state.weather.faults_permille) {
            let fault = fate.go_wrong(&mut state.dice, verb, lease);
            let window = Window::new(now, now + fate.before + fate.after);
            state.fault(fault, Some(verb), process, window);
        }
        fate
    }

    fn be_copied(&mut self, state: &mut State, process: usize, verb: Verb, lease: Ms, now: Ms) {
        let fault = match verb {
            Verb::Claim => Fault::CopiedClaim,
            Verb::Renew => Fault::CopiedRenew,
            Verb::Complete => Fault::CopiedComplete,
            Verb::Release => Fault::CopiedRelease,
            Verb::Settled
            | Verb::Get
            | Verb::List
            | Verb::Forget
            | Verb::Extend
            | Verb::Resolve
            | Verb::Sweep
            | Verb::Stats
            | Verb::Ping
            | Verb::Recheck
            | Verb::CountReplays
            | Verb::Agree => return,
        };
        if !state.dice.chance(state.weather.copies_permille) {
            return;
        }
        let ms = late(&mut state.dice, lease);
        self.copy = Some(ms);
        // A copy is no excuse for anyone: counted, but nobody's trouble.
        state.report.count_fault(fault);
        let verb = Some(verb);
        state.note(now, Some(process), What::Fault { fault, verb, ms });
    }

    fn go_wrong(&mut self, dice: &mut Dice, verb: (Verb, Token), lease: Ms) -> Fault {
        self.faulty = Some(verb);
        let delay = late(dice, lease);
        // A loss is noticed at once or late.
        let noticed = if dice.chance(500) { 0 } else { delay };
        match dice.below(4) {
            0 => {
                self.before += delay;
                Fault::SlowRequest
            }
            1 => {
                self.after += delay;
                Fault::SlowReply
            }
            2 => {
                self.request_lost = true;
                self.after += noticed;
                Fault::LostRequest
            }
            _ => {
                self.reply_lost = true;
                self.after += noticed;
                Fault::LostReply
            }
        }
    }
}

fn latency(dice: &mut Dice) -> Ms {
    dice.below(2 * LATENCY_MAX).saturating_sub(LATENCY_MAX - 1)
}

/// Long enough to matter: up to a lease, or past it.
fn late(dice: &mut Dice, lease: Ms) -> Ms {
    match dice.below(10) {
        0..5 => dice.between(1..=lease),
        5..9 => dice.between(lease..=lease * 5 / 2),
        _ => dice.between(lease..=LATE_MAX),
    }
}
