// What a function or handler may know about its own execution: the native part's, with its durable steps.
'use strict'

const { AsyncLocalStorage } = require('node:async_hooks')
const { OnlyonceError } = require('./errors')
const { native } = require('./steps')

const running = new AsyncLocalStorage()

/** The execution that the calling function or handler is part of. */
function execution() {
  const found = running.getStore()
  if (!found) throw new OnlyonceError('no keyed operation runs here')
  return found
}

/** Runs `work` as part of an execution. */
function within(inside, work) {
  return running.run(inside ?? undefined, work)
}

/** Runs `work` once in this operation: an attempt after a crash gets its value. */
native.Execution.prototype.step = async function step(name, work, options = {}) {
  const { ran } = require('./run')
  const start = (json, signal, number) => this.beginStep(name, json, options.hold, signal, number)
  return (await ran(start, options.input, work)).value
}

module.exports = { execution, within }
