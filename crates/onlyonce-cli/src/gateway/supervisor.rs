//! What a service manager learns: that the gateway is ready, reads its settings again, or stops.
//! Only where `NOTIFY_SOCKET` names a socket (systemd, `Type=notify`); elsewhere nothing happens.

use sd_notify::NotifyState;

use crate::said::say;

/// It listens, and its store is open.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// It reads its settings again.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => say(format_args!("the service manager cannot be told: {error}")),
    }
}

/// Running requests may end.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        say(format_args!("the service manager cannot be told: {error}"));
    }
}
