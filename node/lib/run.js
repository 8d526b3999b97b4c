// One call of a function under a key, or of a step: its steps, taken on JavaScript's thread.
'use strict'

const { calling } = require('./errors')
const { within } = require('./execution')
const { Stepper, whenAbandoned } = require('./steps')

/** `start` makes the native call of its input, a bell and a number; gives the value, and whether it is an earlier one. */
async function ran(start, input, work, signal) {
  signal?.throwIfAborted()
  const json = JSON.stringify(input ?? null, withoutSignals)
  const stepper = new Stepper()
  const run = calling(() => start(json, stepper.signal, stepper.number))
  const driven = drive(stepper, run, work)
  if (!signal) return driven
  // An abort ends the waiting; the function goes on, and its value is stored.
  driven.catch(() => {})
  let abort
  const aborted = new Promise((_, reject) => {
    abort = () => reject(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
  })
  return Promise.race([driven, aborted]).finally(() => signal.removeEventListener('abort', abort))
}

/** How long a caller waits is no part of what its call means. */
function withoutSignals(_name, value) {
  return value instanceof AbortSignal ? undefined : value
}

async function drive(stepper, run, work) {
  let failure
  try {
    for (;;) {
      const step = await stepper.step(() => calling(() => run.poll()))
      if (step.kind === 'work') {
        execute(step, work).catch((error) => {
          failure = error
        })
      } else if (step.kind === 'done') {
        return { value: JSON.parse(step.value), replayed: step.replayed }
      } else {
        throw failure
      }
    }
  } finally {
    stepper.close()
  }
}

async function execute({ work: reply, execution }, work) {
  const deadline = new AbortController()
  const end = whenAbandoned(reply, () => deadline.abort(new Error('the function is past its deadline')))
  try {
    const value = await within(execution, () => work({ signal: deadline.signal, execution }))
    returned(reply, value)
  } catch (error) {
    // Before the native part hears of it: what it says next is answered with this error.
    queueMicrotask(() => reply.raised(String(error)))
    throw error
  } finally {
    end()
  }
}

/** What the function did is done: a value that cannot be written must not make it run again. */
function returned(reply, value) {
  try {
    const json = JSON.stringify(value === undefined ? null : value)
    if (json === undefined) throw new TypeError('the value cannot be written as JSON')
    calling(() => reply.returned(json))
  } catch (error) {
    reply.unwritable(String(error))
  }
}

module.exports = { ran }
