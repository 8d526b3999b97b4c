// The engine, and functions that run once per key.
'use strict'

const errors = require('./errors')
const { calling, classed } = errors
const { execution } = require('./execution')
const { fetchHandler } = require('./fetch')
const { flushLog, onLog } = require('./log')
const { nodeMiddleware, refuse } = require('./http')
const { ran } = require('./run')
const { native } = require('./steps')

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
    try {
      return await calling(() => this.#native.closeLater(grace))
    } catch (error) {
      throw classed(error)
    }
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
    return ran((json, signal, number) => job.run(String(key), json, signal, number), options.input, work, options.signal)
  }

  /** Makes a function run once per key. */
  once(options, work) {
    const name = options.name ?? work.name
    if (typeof options.key !== 'function') throw new TypeError('once() needs key: a function of the arguments')
    if (!name) throw new TypeError('once() needs name for a function that has none')
    const job = calling(() => this.#native.job(name, options))
    const input = options.input ?? ((...args) => args.filter((it) => !(it instanceof AbortSignal)))
    const called = (...args) => {
      const key = String(options.key(...args))
      const start = (json, signal, number) => job.run(key, json, signal, number)
      return ran(start, input(...args), () => work(...args), options.signal?.(...args))
    }
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
        middleware(request.raw, reply.raw, done, { earlier: () => reply.getHeaders(), taken: () => reply.hijack() })
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
  flushLog()
}

const { calling: _calling, classed: _classed, ...classes } = errors
module.exports = { Engine, execution, onLog, ...classes }
