// The errors of the package.
'use strict'

/** Anything that this package throws by itself. */
class OnlyonceError extends Error {
  constructor(message) {
    super(message)
    this.name = new.target.name
  }
}

/** The store cannot be opened, or a setting is wrong. */
class OpenError extends OnlyonceError {}
/** The key is not one that can be used. */
class KeyInvalid extends OnlyonceError {}
/** The function failed in a concurrent call with the same key; nothing is stored. */
class FailedElsewhere extends OnlyonceError {}
/** The function ran, but its value could not be written; it is not run again under this key. */
class NotKept extends OnlyonceError {}

/** The function was not run for this call. */
class Refused extends OnlyonceError {
  constructor(message, reason, retryAfter, retryable) {
    super(message)
    this.reason = reason
    this.retryAfter = retryAfter
    this.retryable = retryable
  }
}

/** The key was used with another input: use a new key. */
class Mismatch extends Refused {}
/** The function still runs in another call: retry later with the same key. */
class InProgress extends Refused {}
/** It is not known whether the function took effect. */
class OutcomeUnknown extends Refused {}
/** It cannot be run or stored now: retry later with the same key. */
class Unavailable extends Refused {}

const REASONS = {
  mismatch: Mismatch,
  'other-credential': Mismatch,
  'in-progress': InProgress,
  'too-many-waiters': InProgress,
  'outcome-unknown': OutcomeUnknown,
  'timed-out': OutcomeUnknown,
  'too-many-running': Unavailable,
  'over-quota': Unavailable,
  'too-much-buffered': Unavailable,
  'too-many-bad-requests': Unavailable,
  'not-run': Unavailable,
  'not-stored': Unavailable,
  'store-down': Unavailable,
  'shutting-down': Unavailable,
}

const KINDS = {
  open: OpenError,
  key: KeyInvalid,
  'failed-elsewhere': FailedElsewhere,
  'not-kept': NotKept,
  closed: OnlyonceError,
}

/** The class of an error that came from the native part. */
function classed(error) {
  const [kind, ...parts] = String(error?.message).split('|')
  if (kind === 'refused') {
    const [reason, after, retryable, ...detail] = parts
    const Kind = REASONS[reason] ?? Refused
    const known = retryable === '' ? undefined : retryable === 'true'
    return new Kind(detail.join('|'), reason, after === '' ? undefined : Number(after), known)
  }
  if (kind === 'json' || kind === 'setting' || kind === 'request' || kind === 'response') {
    return new TypeError(parts.join('|'))
  }
  return kind in KINDS ? new KINDS[kind](parts.join('|')) : error
}

/** Calls the native part. */
function calling(work) {
  try {
    return work()
  } catch (error) {
    throw classed(error)
  }
}

module.exports = {
  FailedElsewhere,
  InProgress,
  KeyInvalid,
  Mismatch,
  NotKept,
  OnlyonceError,
  OpenError,
  OutcomeUnknown,
  Refused,
  Unavailable,
  calling,
  classed,
}
