//! Where a process stops: everything that crosses the edge of a process (a verb, its reply, a
//! handler's progress, an answer) passes its gate.

use tokio::sync::watch;

/// Open, closed for a while, or closed for ever.
pub(super) struct Gate(watch::Sender<Position>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Open,
    Paused,
    Crashed,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Position::Open))
    }

    /// Waits while the process is paused; for ever once it crashed.
    pub(super) async fn pass(&self) {
        if *self.0.borrow() != Position::Open {
            self.reach(Position::Open).await;
        }
    }

    /// Returns when the process has crashed.
    pub(super) async fn crashed(&self) {
        self.reach(Position::Crashed).await;
    }

    async fn reach(&self, wanted: Position) {
        let mut position = self.0.subscribe();
        let reached = position.wait_for(|now| *now == wanted).await;
        debug_assert!(reached.is_ok(), "the gate outlives whoever waits at it");
    }

    pub(super) fn is_crashed(&self) -> bool {
        *self.0.borrow() == Position::Crashed
    }

    pub(super) fn pause(&self) {
        self.turn(Position::Open, Position::Paused);
    }

    pub(super) fn resume(&self) {
        self.turn(Position::Paused, Position::Open);
    }

    pub(super) fn crash(&self) {
        self.0.send_replace(Position::Crashed);
    }

    fn turn(&self, from: Position, to: Position) {
        self.0.send_if_modified(|now| {
            let turns = *now == from;
            if turns {
                *now = to;
            }
            turns
        });
    }
}
