// The layer around a function from `Request` to `Response`. What is covered, refused, stored and
// replayed is decided by the engine; this module only carries bytes.
'use strict'

const { within } = require('./execution')
const { classed } = require('./errors')
const { Stepper, room, whenAbandoned } = require('./steps')

function fetchHandler(site, handler, { principal } = {}) {
  return async function onlyonce(request, ...more) {
    const who = principal?.(request)
    const stepper = new Stepper()
    let exchange
    try {
      const url = new URL(request.url)
      const headers = [...request.headers].flat()
      if (!request.headers.has('host')) headers.push('host', url.host)
      const target = url.pathname + url.search
      // `Headers` joins lines of one name: two keys look like one.
      exchange = site.exchangeJoined(request.method, target, headers, who, stepper.signal, stepper.number)
    } catch (error) {
      stepper.close()
      if (classed(error) instanceof TypeError) return new Response('Bad Request', { status: 400 })
      throw classed(error)
    }
    if (!exchange) {
      stepper.close()
      return without(site.optOutHeader, await handler(request, ...more))
    }
    return new Serving(request, more, handler, stepper, exchange).serve()
  }
}

function without(header, response) {
  if (!response.headers.has(header)) return response
  const copy = new Response(response.body, response)
  copy.headers.delete(header)
  return copy
}

/**
 * The request once more, with its body in memory. It is of the class that the framework made (`NextRequest` has
 * `nextUrl` and `cookies`), and has what a router has put on it (`params`).
 */
function again(request, init) {
  // Next hands out a proxy, whose own `constructor` is bound and has no prototype.
  const Kind = Object.getPrototypeOf(request).constructor
  const inner = new (Kind.prototype instanceof Request ? Kind : Request)(request.url, init)
  for (const name of Object.keys(request)) if (!(name in inner)) inner[name] = request[name]
  return inner
}

/** One covered request. */
class Serving {
  constructor(request, more, handler, stepper, exchange) {
    this.request = request
    this.more = more
    this.handler = handler
    this.stepper = stepper
    this.exchange = exchange
    this.reader = request.body?.getReader()
  }

  async serve() {
    try {
      for (;;) {
        const step = await this.next()
        if (step.kind === 'read') await this.read()
        else if (step.kind === 'handle') this.handle(step)
        else if (step.kind === 'head') return this.response(step)
        else throw new Error(step.why ?? 'the response broke off')
      }
    } catch (error) {
      this.close()
      throw error
    }
  }

  next() {
    return this.stepper.step(() => this.exchange.poll())
  }

  close() {
    this.stepper.close()
    this.exchange.leave()
  }

  async read() {
    try {
      const { done, value } = this.reader ? await this.reader.read() : { done: true }
      this.exchange.feed(value ?? new Uint8Array(), !done)
    } catch {
      this.exchange.hangUp()
    }
  }

  /** Starts the handler, which goes on if this request's client goes away. */
  handle({ headers, data, execution, reply }) {
    const deadline = new AbortController()
    const pairs = []
    for (let index = 0; index < headers.length; index += 2) pairs.push([headers[index], headers[index + 1]])
    const inner = again(this.request, {
      method: this.request.method,
      headers: pairs,
      body: data.length > 0 ? data : undefined,
      signal: deadline.signal,
    })
    inner.onlyonce = execution
    const end = whenAbandoned(reply, () => deadline.abort(new Error('the handler is past its deadline')))
    within(execution, () => answer(this.handler, inner, this.more, reply)).finally(end)
  }

  response({ status, headers }) {
    const pairs = []
    for (let index = 0; index < headers.length; index += 2) pairs.push([headers[index], headers[index + 1]])
    const isEmpty = status === 204 || status === 205 || status === 304
    const body = isEmpty ? null : this.body()
    if (isEmpty) this.close()
    return new Response(body, { status, headers: pairs })
  }

  body() {
    return new ReadableStream({
      pull: async (controller) => {
        const step = await this.next()
        if (step.kind === 'data') return controller.enqueue(step.data)
        this.close()
        if (step.kind === 'end') controller.close()
        else controller.error(new Error('the response broke off before its end'))
      },
      cancel: () => this.close(),
    })
  }
}

async function answer(handler, request, more, reply) {
  let writer
  try {
    const response = await handler(request, ...more)
    writer = reply.start(response.status, [...response.headers].flat())
    if (response.body) {
      for await (const piece of response.body) {
        writer.send(piece)
        await room(writer)
      }
    }
    writer.end()
  } catch (error) {
    if (writer) writer.breakOff()
    else reply.raised()
    console.error('onlyonce: the handler threw', error)
  }
}

module.exports = { fetchHandler }
