// A client of idempotent services, for browsers and Node, without native code. One intention of a user
// has one key, which is kept before the first request is sent: a page that is loaded again, or a process
// that was killed, repeats the request with the same key.

const IN_PROGRESS_MS = 2000
const WAIT_MIN_MS = 100
const WAIT_MAX_MS = 60 * 60 * 1000

/**
 * The service refuses this request. Where `isKept`, that does not say what became of an earlier attempt (a
 * sign-in has expired, an outcome is unknown): the key is kept, and the next try is sent with it.
 */
export class RefusedError extends Error {
  constructor(response, problem, isKept) {
    super(problem?.detail ?? problem?.message ?? `the service answered ${response.status}`)
    this.name = 'RefusedError'
    this.response = response
    this.problem = problem
    this.isKept = isKept
  }
}

/** No answer after all attempts. Whether it took effect is not known; the key is kept for the next try. */
export class UnansweredError extends Error {
  constructor(cause) {
    super('no answer: try again later, with the same intention', { cause })
    this.name = 'UnansweredError'
  }
}

/** The data changed while a request is on its way, or after one whose outcome is not known. */
export class ChangedError extends Error {
  constructor() {
    super('the data changed, and an earlier request with it may have taken effect: settle that first, or forget() it')
    this.name = 'ChangedError'
  }
}

/** Keys in memory: for tests. */
export class MemoryKeys {
  #kept = new Map()

  async get(name) {
    return this.#kept.get(name)
  }

  async put(name, value) {
    this.#kept.set(name, value)
  }

  async delete(name) {
    this.#kept.delete(name)
  }
}

/** Keys in the browser's IndexedDB. */
export class IndexedDBKeys {
  #database

  constructor(name = 'onlyonce', factory = globalThis.indexedDB) {
    this.#database = new Promise((resolve, reject) => {
      const opening = factory.open(name, 1)
      opening.onupgradeneeded = () => opening.result.createObjectStore('keys')
      opening.onsuccess = () => resolve(opening.result)
      opening.onerror = () => reject(opening.error)
    })
  }

  get(name) {
    return this.#ask('readonly', (keys) => keys.get(name))
  }

  put(name, value) {
    return this.#ask('readwrite', (keys) => keys.put(value, name))
  }

  delete(name) {
    return this.#ask('readwrite', (keys) => keys.delete(name))
  }

  /** Resolves when the transaction is durable, not when the request succeeded. */
  async #ask(mode, ask) {
    const database = await this.#database
    return new Promise((resolve, reject) => {
      const transaction = database.transaction('keys', mode, { durability: 'strict' })
      const asked = ask(transaction.objectStore('keys'))
      transaction.oncomplete = () => resolve(asked.result)
      transaction.onerror = () => reject(transaction.error)
      transaction.onabort = () => reject(transaction.error)
    })
  }
}

/** Keys in a file of Node, replaced as a whole. One process uses it. */
export class FileKeys {
  #path
  #reading
  #writing = Promise.resolve()

  constructor(path) {
    this.#path = path
  }

  /** One map for all callers, those that ask while the file is being read too: a key in another would never be written. */
  #read() {
    this.#reading ??= readKeys(this.#path).catch((error) => {
      this.#reading = undefined
      throw error
    })
    return this.#reading
  }

  async get(name) {
    return (await this.#read()).get(name)
  }

  async put(name, value) {
    const kept = await this.#read()
    kept.set(name, value)
    return this.#write(kept)
  }

  async delete(name) {
    const kept = await this.#read()
    if (kept.delete(name)) return this.#write(kept)
  }

  #write(kept) {
    const writing = this.#writing.catch(() => {}).then(() => writeKeys(this.#path, kept))
    this.#writing = writing
    return writing
  }
}

async function readKeys(path) {
  const { readFile } = await import('node:fs/promises')
  try {
    return new Map(Object.entries(JSON.parse(await readFile(path, 'utf8'))))
  } catch (error) {
    if (error.code !== 'ENOENT') throw error
    return new Map()
  }
}

/** Replaces the file as a whole, also for the power that fails right after. */
async function writeKeys(path, kept) {
  const { open, rename } = await import('node:fs/promises')
  const { dirname } = await import('node:path')
  const beside = `${path}.new`
  const file = await open(beside, 'w', 0o600)
  try {
    await file.writeFile(JSON.stringify(Object.fromEntries(kept)))
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(beside, path)
  const folder = await open(dirname(path), 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

export class Client {
  #running = new Map()

  constructor(options = {}) {
    this.keys = options.keys ?? (globalThis.indexedDB ? new IndexedDBKeys() : new MemoryKeys())
    this.fetch = options.fetch ?? ((...args) => globalThis.fetch(...args))
    this.header = options.header ?? 'Idempotency-Key'
    this.attempts = options.attempts ?? 3
    this.timeout = options.timeout ?? 30_000
    this.pages = options.pages ?? false
    this.backoff = options.backoff ?? [1000, 10_000]
    this.sleep = options.sleep ?? sleep
    this.counts = { sent: 0, retries: 0, replayed: 0, refused: 0, unanswered: 0 }
  }

  /**
   * Sends a request for an intention, such as `order of cart 7`. A second call meanwhile gets the same answer;
   * with other data it is a `ChangedError`.
   */
  async send(intention, url, options = {}) {
    const digest = digestOf(options.method ?? 'POST', url, options.body)
    const running = this.#running.get(intention)
    if (running) {
      // The answer to something else would be taken for the one to this.
      if ((await running.digest) !== (await digest)) throw new ChangedError()
      return (await running.sending).clone()
    }
    const sending = this.#send(intention, digest, url, options).finally(() => this.#running.delete(intention))
    this.#running.set(intention, { digest, sending })
    return (await sending).clone()
  }

  /** Drops an intention: the next request for it has a new key. */
  forget(intention) {
    return this.keys.delete(intention)
  }

  async #send(intention, digest, url, { method = 'POST', headers = {}, body, signal }) {
    const asked = await digest
    // One tab at a time, so that two tabs with one intention have one key.
    const key = await alone(intention, () => this.#key(intention, asked))
    const request = { method, body, headers: { ...headers, [this.header]: key } }
    const { response, settles } = await this.#tried(url, request, signal)
    if (response.headers.get('idempotent-replayed') === 'true') this.counts.replayed += 1
    if (settles) await alone(intention, () => this.#settled(intention, key))
    if (!response.ok) {
      this.counts.refused += 1
      throw new RefusedError(response, await problemOf(response), !settles)
    }
    return response
  }

  /** The key of an intention, on disk before the first byte is sent: a crash from here on repeats with it. */
  async #key(intention, digest) {
    let kept = await this.keys.get(intention)
    if (kept && kept.digest !== digest) {
      if (kept.sent) throw new ChangedError()
      kept = undefined
    }
    kept ??= { key: crypto.randomUUID(), digest, sent: false }
    await this.keys.put(intention, { ...kept, sent: true })
    return kept.key
  }

  /** Drops the key that was answered, and not one that another tab has made since. */
  async #settled(intention, key) {
    if ((await this.keys.get(intention))?.key === key) await this.keys.delete(intention)
  }

  /** The first answer that ends it. */
  async #tried(url, request, signal) {
    let last
    for (let attempt = 1; attempt <= this.attempts; ) {
      signal?.throwIfAborted()
      let wait = backoff(attempt, this.backoff)
      try {
        this.counts.sent += 1
        const response = await this.#attempt(url, request, signal)
        const verdict = this.#isOfTheService(request, response) ? await judge(response) : { isFinal: false }
        if (verdict.isFinal) {
          // All of it: of an answer that breaks off the rest can be had with this key only.
          if (verdict.settles) await response.clone().arrayBuffer()
          return { response, settles: verdict.settles }
        }
        if (verdict.wait !== undefined) wait = bounded(verdict.wait)
        last = new Error(`the service answered ${response.status}`)
        // It runs: to wait for it is no failed attempt.
        if (!verdict.isRunning) attempt += 1
      } catch (error) {
        signal?.throwIfAborted()
        last = error
        attempt += 1
      }
      if (attempt <= this.attempts) {
        this.counts.retries += 1
        await this.sleep(wait, signal)
      }
    }
    this.counts.unanswered += 1
    throw new UnansweredError(last)
  }

  /** Redirects are not followed: a POST would become a GET, and its 200 would count as done. */
  #attempt(url, request, signal) {
    const timeout = AbortSignal.timeout(this.timeout)
    const together = signal ? AbortSignal.any([signal, timeout]) : timeout
    return this.fetch(url, { ...request, redirect: 'manual', signal: together })
  }

  /** Whether it is no redirect, no network's sign-in, and no web page that nobody asked for. */
  #isOfTheService(request, response) {
    const { status, type } = response
    if (type === 'opaqueredirect' || response.redirected || status === 511 || (status >= 300 && status < 400)) return false
    if (this.pages || new Headers(request.headers).get('accept')?.includes('text/html')) return true
    return !/^text\/html\b/i.test(response.headers.get('content-type') ?? '')
  }
}

const ends = new Map()

/** Runs it while no other client does: in any tab of this origin, or else in this process. */
function alone(intention, work) {
  const locks = globalThis.navigator?.locks
  if (locks) return locks.request(`onlyonce ${intention}`, work)
  const working = (ends.get(intention) ?? Promise.resolve()).then(work)
  const end = working.catch(() => {}).then(() => {
    if (ends.get(intention) === end) ends.delete(intention)
  })
  ends.set(intention, end)
  return working
}

/** What an answer means for a client that may send its request again with the same key. */
async function judge(response) {
  const wait = retryAfter(response.headers.get('retry-after'))
  const { status } = response
  if (status === 408 || status === 425 || status === 429 || status >= 500) {
    const problem = await problemOf(response)
    const isFinal = retryable(problem) === false || status === 501 || status === 507
    // That it is not to be sent again does not say that it did not happen.
    const settles = isFinal && !isOfAProxy(status) && !isOfTheLayer(problem)
    return { isFinal, settles, wait }
  }
  if (status === 409 || (status === 202 && wait !== undefined)) {
    const problem = await problemOf(response)
    const isRunning = status === 409 ? isInProgress(problem, wait) : saysInProgress(problem)
    if (isRunning) return { isFinal: false, isRunning, wait: wait ?? IN_PROGRESS_MS }
    return { isFinal: true, settles: status === 202 || !isOfTheLayer(problem) }
  }
  if (status === 401 || status === 407) return { isFinal: true, settles: false }
  return { isFinal: true, settles: response.ok || !isOfTheLayer(await problemOf(response)) }
}

/** Statuses that stand for a service that gave no answer: none says whether it took effect. */
function isOfAProxy(status) {
  return status === 408 || status === 425 || status === 429 || (status >= 502 && status <= 504)
}

/** A refusal that is about the key, in every profile's words: it is no outcome of the operation. */
function isOfTheLayer(problem) {
  const about = /outcome-unknown|idempotency|mismatch|^conflict$|request-id-(previously-used|reused)|out-of-(time|window)/
  return codesOf(problem).some((code) => about.test(code))
}

/** What an error calls itself, in every profile's form: `OutcomeUnknown` and `outcome_unknown` are one. */
function codesOf(problem) {
  const error = problem?.error ?? problem?.errors?.[0] ?? problem
  const codes = [error?.type, error?.code, error?.status, problem?.details?.[0]?.issue]
  const texts = codes.filter((code) => typeof code === 'string')
  return texts.map((code) => code.replace(/([a-z])(?=[A-Z])/g, '$1-').toLowerCase().replace(/[^a-z0-9]+/g, '-'))
}

function saysInProgress(problem) {
  return codesOf(problem).some((code) => /in-progress|in-flight|concurrent/.test(code))
}

/** A conflict that ends by itself, by the code of the profile's error, else by its `Retry-After`. */
function isInProgress(problem, wait) {
  if (retryable(problem) !== undefined) return retryable(problem)
  return saysInProgress(problem) || wait !== undefined
}

function retryable(problem) {
  const told = problem?.retryable ?? problem?.error?.retryable
  return typeof told === 'boolean' ? told : undefined
}

async function problemOf(response) {
  try {
    return await response.clone().json()
  } catch {
    return undefined
  }
}

/** Seconds or a date, as milliseconds from now. */
export function retryAfter(value, now = Date.now()) {
  if (value === null || value === undefined) return undefined
  if (/^\d+$/.test(value.trim())) return Number(value) * 1000
  const at = Date.parse(value)
  return Number.isNaN(at) ? undefined : Math.max(0, at - now)
}

/** Not at once, and not later than timers can count: they would fire at once too. */
function bounded(wait) {
  return Math.min(Math.max(wait, WAIT_MIN_MS), WAIT_MAX_MS)
}

/** Exponential, with full jitter. */
function backoff(attempt, [first, most]) {
  return Math.random() * Math.min(most, first * 2 ** (attempt - 1))
}

async function sleep(milliseconds, signal) {
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds)
    signal?.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    }, { once: true })
  })
  signal?.throwIfAborted()
}

async function digestOf(method, url, body) {
  const text = `${method}\n${url}\n${typeof body === 'string' ? body : JSON.stringify(body ?? null)}`
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/**
 * Makes a form submit each intention once: its key is kept until there is an answer, also when the page is
 * loaded again. Resolves `onAnswer(response)` or `onError(error)`; returns what takes it off.
 */
export function protectForm(form, { client, intention, encode = asJSON, onAnswer, onError }) {
  const name = intention ?? `form ${form.action}`
  const submit = async (event) => {
    event.preventDefault()
    // A button submits unless it says otherwise.
    const buttons = form.querySelectorAll('[type=submit], button:not([type])')
    for (const button of buttons) button.disabled = true
    try {
      const { body, headers } = encode(new FormData(form))
      onAnswer?.(await client.send(name, form.action, { method: 'POST', body, headers }))
    } catch (error) {
      onError?.(error)
    } finally {
      for (const button of buttons) button.disabled = false
    }
  }
  form.addEventListener('submit', submit)
  return () => form.removeEventListener('submit', submit)
}

/** A field that is there several times is a list of its values. */
function asJSON(data) {
  const fields = Object.create(null)
  for (const [name, value] of data) {
    if (typeof value !== 'string') throw new TypeError(`the field ${name} is a file, which JSON cannot carry: give encode`)
    fields[name] = name in fields ? [].concat(fields[name], value) : value
  }
  return { body: JSON.stringify(fields), headers: { 'content-type': 'application/json' } }
}
