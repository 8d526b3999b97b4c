// What the engines of this process and their stores have to say, for the application's own logging.
'use strict'

const { calling } = require('./errors')
const { bell, forget, native, register } = require('./steps')

let current

/** Calls `write(level, text)` for each line of at least `level`, on this thread; an earlier callback gets no more. */
function onLog(write, level = 'info') {
  if (typeof write !== 'function') throw new TypeError('onLog() needs a function of a level and a text')
  const lines = calling(() => native.logTo(level))
  const flush = () => {
    for (const line of lines.drain()) write(line.level, line.text)
  }
  const number = register(flush)
  const stop = () => {
    flush()
    lines.close()
    forget(number)
    if (current?.stop === stop) current = undefined
  }
  current?.stop()
  current = { flush, stop }
  lines.wakes(bell(), number)
  return stop
}

/** Writes what is there now: when a process ends, nobody rings any more. */
function flushLog() {
  current?.flush()
}

module.exports = { flushLog, onLog }
