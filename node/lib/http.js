// Middleware for servers of `node:http`. What is covered, refused, stored and replayed is decided by
// the engine; this module only carries bytes.
'use strict'

const { Readable } = require('node:stream')
const { classed } = require('./errors')
const { within } = require('./execution')
const { Stepper, room, whenAbandoned } = require('./steps')

/**
 * `earlier` gives the headers that were set before this request came here, `taken` is told when it is answered here:
 * for frameworks that keep headers and answers of their own.
 */
function nodeMiddleware(site, { principal } = {}) {
  return function onlyonce(request, response, next, { earlier = () => response.getHeaders(), taken = () => {} } = {}) {
    let who
    try {
      who = principal?.(request)
    } catch (error) {
      return next(error)
    }
    const stepper = new Stepper()
    let exchange
    try {
      const { method, originalUrl, url, rawHeaders } = request
      exchange = site.exchange(method, originalUrl ?? url, rawHeaders, who, stepper.signal, stepper.number)
    } catch (error) {
      stepper.close()
      const wrong = classed(error)
      if (!(wrong instanceof TypeError)) return next(wrong)
      // Node reads more than HTTP allows: such a request is its client's mistake, and none of the application's.
      taken()
      return refuse(request, response, 400)
    }
    if (!exchange) {
      stepper.close()
      takeOff(site.optOutHeader, response)
      return next()
    }
    if (request.readableEnded || request.readableDidRead) {
      stepper.close()
      exchange.leave()
      return next(new Error('onlyonce needs the request as it was sent: use it before anything that reads the body'))
    }
    new Serving(request, response, next, stepper, exchange, new Around(earlier()), taken).serve()
  }
}

/** Answers without anybody's help. */
function refuse(request, response, status) {
  if (!response.headersSent) response.writeHead(status)
  response.end()
  discard(request)
}

/** Takes the opt-out header off a response that the engine has nothing to do with. */
function takeOff(header, response) {
  const writeHead = response.writeHead
  response.writeHead = function (...args) {
    const headers = args.at(-1)
    if (headers && typeof headers === 'object' && !Array.isArray(headers)) {
      for (const name of Object.keys(headers)) if (name.toLowerCase() === header) delete headers[name]
    }
    this.removeHeader(header)
    return writeHead.apply(this, args)
  }
}

/** One covered request. */
class Serving {
  constructor(request, response, next, stepper, exchange, around, taken) {
    this.request = request
    this.response = response
    this.next = next
    this.stepper = stepper
    this.exchange = exchange
    this.around = around
    this.taken = taken
    this.isHandled = false
    this.send = new Sending(response, around)
  }

  async serve() {
    try {
      for (;;) {
        const step = await this.stepper.step(() => this.exchange.poll())
        if (step.kind === 'read') await this.read()
        else if (step.kind === 'handle') this.handle(step)
        else if (step.kind === 'head') this.head(step)
        else if (step.kind === 'data') await this.send.data(step.data)
        else if (step.kind === 'end') return this.send.end()
        else return this.send.breakOff()
      }
    } catch (error) {
      this.send.breakOff(error)
    } finally {
      this.stepper.close()
      this.exchange.leave()
      if (!this.isHandled) discard(this.request)
    }
  }

  head({ status, headers }) {
    if (!this.isHandled) this.taken()
    this.send.head(status, headers)
  }

  /** The next piece of the request's body. */
  async read() {
    const piece = await next(this.request)
    if (piece === GONE) this.exchange.hangUp()
    else if (piece === END) this.exchange.feed(Buffer.alloc(0), false)
    else this.exchange.feed(piece, true)
  }

  /** Lets the application run on a request whose body is in memory, and on a response that is captured. */
  handle({ headers, data, execution, reply }) {
    this.isHandled = true
    refill(this.request, data)
    keepOnly(this.request, headers)
    this.request.onlyonce = execution
    const capture = new Capture(this.response, reply, this.around)
    capture.stop = whenAbandoned(reply, () => capture.abandon())
    try {
      const going = within(execution, () => this.next())
      if (typeof going?.catch === 'function') going.catch((error) => capture.raised(error))
    } catch (error) {
      capture.raised(error)
    }
  }
}

/** A client that is still sending does not read: the rest of a refused body is read, within bounds. */
function discard(request) {
  if (request.readableEnded || request.destroyed) return
  let left = DISCARD_BYTES_MAX
  const timer = setTimeout(() => request.destroy(), DISCARD_MS_MAX).unref()
  request.on('data', (piece) => {
    left -= piece.length
    if (left < 0) request.destroy()
  })
  request.once('close', () => clearTimeout(timer))
  request.on('error', () => {})
  request.resume()
}

const DISCARD_BYTES_MAX = 64 << 20
const DISCARD_MS_MAX = 10_000
const END = Symbol('end')
const GONE = Symbol('gone')

/** Reads without ending the stream's other uses: no iterator, which would destroy it. */
function next(request) {
  return new Promise((resolve) => {
    const look = () => {
      const piece = request.read()
      if (piece !== null) done(piece)
      else if (request.readableEnded) done(END)
    }
    const done = (what) => {
      request.off('readable', look)
      request.off('end', ended)
      request.off('close', gone)
      request.off('error', gone)
      resolve(what)
    }
    const ended = () => done(END)
    const gone = () => done(request.readableEnded || request.complete ? END : GONE)
    request.on('readable', look)
    request.on('end', ended)
    request.on('close', gone)
    request.on('error', gone)
    if (request.destroyed) gone()
    else look()
  })
}

/** Makes a request that was read readable again. */
function refill(request, body) {
  request.removeAllListeners('readable')
  const fresh = new Readable({ read() {} })
  request._readableState = fresh._readableState
  request._read = () => {}
  // Body parsers look at the length that was announced.
  if (body.length > 0) request.push(body)
  request.push(null)
}

/** Drops headers that the layer took off; and an answer that it will write into must not come back compressed. */
function keepOnly(request, headers) {
  const kept = new Map()
  for (let index = 0; index < headers.length; index += 2) kept.set(headers[index], headers[index + 1])
  for (const name of Object.keys(request.headers)) if (!kept.has(name)) delete request.headers[name]
  if (kept.get('accept-encoding') === 'identity') request.headers['accept-encoding'] = 'identity'
}

/** What describes an answer's own body: never kept from before, and always stored. */
const OF_THE_BODY = new Set([
  'content-disposition', 'content-encoding', 'content-language', 'content-length', 'content-location', 'content-range',
  'content-type', 'etag', 'last-modified', 'trailer', 'transfer-encoding',
])

/**
 * Headers that were set around the layer, such as those of CORS: they belong to this request, whoever answers it, and
 * are no part of what is stored.
 */
class Around {
  #lines = new Map()

  constructor(headers) {
    for (const [name, value] of Object.entries(headers)) {
      if (!OF_THE_BODY.has(name.toLowerCase())) this.#lines.set(name.toLowerCase(), listed(value))
    }
  }

  /** Takes what a handler has said, and gives the part that it has said itself. What it took back is gone. */
  without(headers) {
    const own = []
    const left = new Map()
    for (const [written, value] of Object.entries(headers)) {
      const name = written.toLowerCase()
      const [lines, earlier] = [listed(value), this.#lines.get(name) ?? []]
      const begins = earlier.every((line, at) => line === lines[at])
      const isKept = begins && (lines.length === earlier.length || ADDED.has(name))
      if (isKept) left.set(name, earlier)
      for (const line of isKept ? lines.slice(earlier.length) : lines) own.push([name, line])
    }
    this.#lines = left
    return own
  }

  /** The earlier headers, and these: in their places, or beside them where each line stands for itself. */
  with(headers) {
    const said = new Map()
    for (const [name, value] of headers) said.set(name, [...(said.get(name) ?? []), value])
    const all = new Map(this.#lines)
    for (const [name, lines] of said) all.set(name, ADDED.has(name) ? [...(all.get(name) ?? []), ...lines] : lines)
    return all
  }
}

/** Each line stands for itself. */
const ADDED = new Set(['set-cookie', 'link'])

function listed(value) {
  return [].concat(value ?? []).map(String)
}

/** What goes to the client. */
class Sending {
  constructor(response, around) {
    this.response = response
    this.around = around
    this.isGone = false
    response.once('close', () => {
      this.isGone = true
      this.drained?.()
    })
  }

  head(status, headers) {
    const response = this.response
    if (this.isGone) return
    for (const name of response.getHeaderNames()) response.removeHeader(name)
    const pairs = []
    for (let index = 0; index < headers.length; index += 2) pairs.push([headers[index], headers[index + 1]])
    for (const [name, lines] of this.around.with(pairs)) response.setHeader(name, lines.length === 1 ? lines[0] : lines)
    really(response, () => response.writeHead(status))
  }

  async data(piece) {
    if (this.isGone) return
    if (!really(this.response, () => this.response.write(piece))) {
      await new Promise((resolve) => {
        this.drained = resolve
        this.response.once('drain', resolve)
      })
    }
  }

  end() {
    if (!this.isGone) really(this.response, () => this.response.end())
  }

  /** The client must not take what it has for a whole answer. */
  breakOff(error) {
    really(this.response, () => {
      if (this.response.headersSent || this.isGone || error) {
        this.response.destroy(error)
      } else {
        this.response.writeHead(500)
        this.response.end()
      }
    })
  }
}

const CAPTURED = ['writeHead', 'write', 'end', 'flushHeaders', 'destroy', 'headersSent', 'writableEnded']
const CAPTURES = Symbol('onlyonce')

/** Calls the response's own methods, also while an application's calls are captured. */
function really(response, work) {
  const capture = response[CAPTURES]
  if (!capture) return work()
  swap(response, capture.own)
  try {
    return work()
  } finally {
    swap(response, capture.captured)
  }
}

/** Gives these properties to a response; one that is not given is inherited. */
function swap(response, properties) {
  for (const name of CAPTURED) {
    delete response[name]
    if (properties[name]) Object.defineProperty(response, name, properties[name])
  }
}

/** Takes what the application says to its client, which it does not reach. */
class Capture {
  constructor(response, reply, around) {
    this.response = response
    this.reply = reply
    this.around = around
    this.writer = undefined
    this.isOver = false
    this.stop = () => {}
    this.own = {}
    for (const name of CAPTURED) this.own[name] = Object.getOwnPropertyDescriptor(response, name)
    const method = (value) => ({ value, configurable: true, writable: true })
    const getter = (get) => ({ get, configurable: true })
    this.captured = {
      writeHead: method((...args) => this.writeHead(...args)),
      write: method((...args) => this.write(...args)),
      end: method((...args) => this.end(...args)),
      flushHeaders: method(() => this.start()),
      destroy: method((error) => this.destroy(error)),
      headersSent: getter(() => this.writer !== undefined),
      writableEnded: getter(() => this.isOver),
    }
    response[CAPTURES] = this
    swap(response, this.captured)
  }

  writeHead(status, reason, headers) {
    const given = typeof reason === 'object' ? reason : headers
    this.response.statusCode = status
    if (Array.isArray(given)) {
      const pairs = given.flat()
      for (let index = 0; index < pairs.length; index += 2) this.response.appendHeader(pairs[index], pairs[index + 1])
    } else {
      for (const [name, value] of Object.entries(given ?? {})) {
        if (value !== undefined) this.response.setHeader(name, value)
      }
    }
    this.start()
    return this.response
  }

  start() {
    if (this.writer || this.isOver) return
    const headers = this.around.without(this.response.getHeaders()).flat()
    try {
      this.writer = this.reply.start(this.response.statusCode, headers)
    } catch (error) {
      throw classed(error)
    }
  }

  write(chunk, encoding, callback) {
    const after = typeof encoding === 'function' ? encoding : callback
    this.start()
    if (this.isOver) return true
    this.writer.send(bytes(chunk, encoding))
    // A handler that writes much waits for `drain`, which follows as soon as there is room.
    this.hasRoom ??= room(this.writer).then(() => {
      this.hasRoom = undefined
      this.response.emit('drain')
    })
    if (after) this.hasRoom.then(() => after())
    return false
  }

  end(chunk, encoding, callback) {
    const after = [chunk, encoding, callback].find((it) => typeof it === 'function')
    if (this.isOver) return this.response
    const last = chunk === undefined || chunk === null || typeof chunk === 'function' ? undefined : bytes(chunk, encoding)
    if (!this.writer && last && !this.response.hasHeader('content-length')) {
      this.response.setHeader('content-length', last.length)
    }
    this.start()
    if (last) this.writer.send(last)
    this.isOver = true
    this.stop()
    this.writer.end()
    if (after) this.response.once('finish', after)
    return this.response
  }

  destroy(error) {
    this.raised(error ?? new Error('the response was destroyed'))
    return this.response
  }

  raised(error) {
    if (this.isOver) return
    this.isOver = true
    this.stop()
    if (this.writer) this.writer.breakOff()
    else this.reply.raised()
    console.error('onlyonce: the handler threw', error)
  }

  /** It is past its deadline: what it says from now on is for nobody. */
  abandon() {
    this.isOver = true
    this.stop()
  }
}

function bytes(chunk, encoding) {
  return typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : chunk
}

module.exports = { nodeMiddleware, refuse }
