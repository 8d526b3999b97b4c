// The native part: it is of one platform, and says so where it cannot be loaded.
'use strict'

const { OnlyonceError } = require('./errors')

function load() {
  try {
    return require('./onlyonce.node')
  } catch (cause) {
    const here = `${process.platform}-${process.arch}`
    const why = 'the native part of onlyonce, which is published for Linux with glibc on x64, cannot be loaded here'
    const error = new OnlyonceError(`${why}, on ${here}: ${cause.message}. onlyonce/client needs none`)
    error.cause = cause
    throw error
  }
}

module.exports = { native: load() }
