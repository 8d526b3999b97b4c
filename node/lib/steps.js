// How JavaScript learns that a step can be taken: one bell for each thread of JavaScript.
'use strict'

const { native } = require('./native')

const callbacks = new Map()
let lastNumber = 0
let signal
let keptAlive
let waiting = 0

function bell() {
  signal ??= new native.Signal(() => {
    for (const number of signal.drain()) callbacks.get(number)?.()
  })
  return signal
}

/** A number, and what is called when it is signalled. */
function register(callback) {
  lastNumber = (lastNumber + 1) % 0x7fffffff
  callbacks.set(lastNumber, callback)
  return lastNumber
}

function forget(number) {
  callbacks.delete(number)
}

/** The bell alone does not keep a process alive, so that an idle engine does not. */
function hold() {
  if (++waiting === 1) keptAlive = setInterval(() => {}, 0x7fffffff)
}

function release() {
  if (--waiting === 0) clearInterval(keptAlive)
}

/** Takes the steps of one exchange or run, one at a time. */
class Stepper {
  constructor() {
    this.signal = bell()
    this.woken = false
    this.resolve = undefined
    this.number = register(() => {
      this.woken = true
      this.resolve?.()
    })
  }

  async step(poll) {
    for (;;) {
      this.woken = false
      const step = poll()
      if (step) return step
      if (this.woken) continue
      hold()
      try {
        await new Promise((resolve) => {
          this.resolve = resolve
        })
      } finally {
        this.resolve = undefined
        release()
      }
    }
  }

  close() {
    forget(this.number)
  }
}

/** Calls `stop` if the handler is past its deadline; gives what ends that. */
function whenAbandoned(reply, stop) {
  const number = register(stop)
  reply.whenAbandoned(bell(), number)
  return () => forget(number)
}

/** Waits until a slow client has read enough. */
async function room(writer) {
  const stepper = new Stepper()
  try {
    await stepper.step(() => writer.isReady(stepper.signal, stepper.number) || undefined)
  } finally {
    stepper.close()
  }
}

module.exports = { Stepper, bell, forget, native, register, room, whenAbandoned }
