// The engine, and functions that run once per key.
'use strict'

const errors = require('./errors')
const { calling, classed } = errors
const { fetchHandler } = require('./fetch')
const { nodeMiddleware, refuse } = require('./http')
const { Stepper, native, whenAbandoned } = require('./steps')

const DRAIN_SECONDS = 10
/** JavaScript no longer runs then: only what is being stored can still end. */
const EXIT_SECONDS = 2

const engines = new Set()

class Engine {
  #native

  constructor(opened) {
    this.#native = opened
  }

  /** Opens the store at `url`: `memory:`, `file:PATH`, `sqlite:PATH`, `redis://`, `postgres://`, `mysql://`. */
  static async open(url, options = {}) {
    let opened
    try {
      opened = await native.open(url, options.namespace, options.instance)
    } catch (error) {
      throw classed(error)
    }
    const engine = new Engine(opened)
    if (engines.size === 0) process.on('exit', drain)
    engines.add(engine)
    return engine
  }

  /** Takes no more calls, and waits for those that run, at most `grace` seconds; gives how many still ran then. */
  async close(grace = DRAIN_SECONDS) {
    engines.delete(this)
    if (engines.size === 0) process.off('exit', drain)
    const end = performance.now() + grace * 1000
    // Handlers are JavaScript: they go on while we wait here, and not in the native part.
    while (this.#native.inFlight() > 0 && performance.now() < end) {
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    return this.closeNow(EXIT_SECONDS)
  }

  /** @internal */
  closeNow(grace) {
    return calling(() => this.#native.close(grace))
  }

  /** Everything it has counted, as Prometheus reads it. */
  metrics() {
    return calling(() => this.#native.metrics())
  }

  /** How many calls run or wait in this process. */
  get inFlight() {
    return this.#native.inFlight()
  }

  /** Runs `work` once for `key`; every repetition gets the same value. */
  async run(key, work, options = {}) {
    const job = calling(() => this.#native.job(options.name ?? '', options))
    return ran(job, key, options.input, work, options.signal)
  }

  /** Makes a function run once per key. */
  once(options, work) {
    const name = options.name ?? work.name
    if (typeof options.key !== 'function') throw new TypeError('once() needs key: a function of the arguments')
    if (!name) throw new TypeError('once() needs name for a function that has none')
    const job = calling(() => this.#native.job(name, options))
    const input = options.input ?? ((...args) => args)
    const called = (...args) => ran(job, options.key(...args), input(...args), () => work(...args))
    const once = async (...args) => (await called(...args)).value
    once.ran = called
    return once
  }

  /** Middleware for Express, Connect and any server of `node:http`. */
  express(options = {}) {
    return nodeMiddleware(this.#site(options), options)
  }

  /** A request listener of `node:http` whose keyed requests run once. */
  listener(handler, options = {}) {
    const middleware = this.express(options)
    return (request, response) => middleware(request, response, (error) => {
      if (!error) return handler(request, response)
      // There is nobody to hand it to: thrown, it would end the process.
      console.error('onlyonce: a request was not handled', error)
      refuse(request, response, 500)
    })
  }

  /** A Fastify plugin: `fastify.register(engine.fastify(options))`. */
  fastify(options = {}) {
    const middleware = this.express(options)
    const plugin = async (fastify) => {
      fastify.addHook('onRequest', (request, reply, done) => {
        middleware(request.raw, reply.raw, done, () => reply.hijack())
      })
    }
    // It protects the whole server, not a scope of its own.
    plugin[Symbol.for('skip-override')] = true
    return plugin
  }

  /** The same for a function from `Request` to `Response`: Hono, Next, Deno, Bun. */
  fetch(handler, options = {}) {
    return fetchHandler(this.#site(options), handler, options)
  }

  #site({ profile, rules, route }) {
    return calling(() => this.#native.site({ profile, rules, route }))
  }
}

/** Waits for what is being stored when the process ends, and says what is lost. */
function drain() {
  for (const engine of engines) {
    const left = engine.closeNow(EXIT_SECONDS)
    if (left > 0) console.error(`onlyonce: ${left} calls were still running when the process ended`)
  }
}

async function ran(job, key, input, work, signal) {
  signal?.throwIfAborted()
  const json = JSON.stringify(input ?? null)
  const stepper = new Stepper()
  const run = calling(() => job.run(String(key), json, stepper.signal, stepper.number))
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

async function drive(stepper, run, work) {
  let failure
  try {
    for (;;) {
      const step = await stepper.step(() => calling(() => run.poll()))
      if (step.kind === 'work') {
        execute(step.work, work).catch((error) => {
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

async function execute(reply, work) {
  const deadline = new AbortController()
  const end = whenAbandoned(reply, () => deadline.abort(new Error('the function is past its deadline')))
  try {
    const value = await work({ signal: deadline.signal })
    const json = JSON.stringify(value === undefined ? null : value)
    if (json === undefined) throw new TypeError('the value cannot be written as JSON')
    calling(() => reply.returned(json))
  } catch (error) {
    // Before the native part hears of it: what it says next is answered with this error.
    queueMicrotask(() => reply.raised(String(error)))
    throw error
  } finally {
    end()
  }
}

const { calling: _calling, classed: _classed, ...classes } = errors
module.exports = { Engine, ...classes }
