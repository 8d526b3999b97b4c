// The client without native code, against a service behind the middleware.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { IDBFactory } from 'fake-indexeddb'
import {
  ChangedError,
  Client,
  FileKeys,
  IndexedDBKeys,
  MemoryKeys,
  protectForm,
  RefusedError,
  retryAfter,
  UnansweredError,
} from 'onlyonce/client'

const { Engine } = createRequire(import.meta.url)('onlyonce')

/** Serves orders behind the middleware while `work` runs. */
async function served(options, work) {
  const engine = await Engine.open('memory:')
  const shop = { runs: 0, keys: new Set() }
  const listener = engine.listener((request, response) => {
    shop.runs += 1
    request.resume().on('end', () => setTimeout(() => response.end(`order ${shop.runs}`), 50))
  }, options)
  const server = createServer((request, response) => {
    shop.keys.add(request.headers['idempotency-key'])
    listener(request, response)
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  try {
    await work(`http://127.0.0.1:${server.address().port}/orders`, shop)
  } finally {
    server.closeAllConnections()
    server.close()
    await engine.close()
  }
}

/** Loses the first answers after they were given. */
function losing(count) {
  let left = count
  return async (url, init) => {
    const response = await fetch(url, init)
    if (left-- > 0) {
      await response.arrayBuffer()
      throw new TypeError('the connection was lost')
    }
    return response
  }
}

const quick = async () => {}
const body = JSON.stringify({ cents: 5 })

test('a lost answer is asked for with the same key', () =>
  served({}, async (url, shop) => {
    const client = new Client({ keys: new MemoryKeys(), fetch: losing(2), sleep: quick })

    const response = await client.send('cart 7', url, { body })

    assert.equal(await response.text(), 'order 1')
    assert.deepEqual([shop.runs, shop.keys.size, client.counts.replayed], [1, 1, 1])
    assert.equal(await (await client.send('cart 7', url, { body })).text(), 'order 2')
  }))

test('the key is kept before the first request, and a process that was killed repeats with it', () =>
  served({}, async (url, shop) => {
    const path = join(mkdtempSync(join(tmpdir(), 'onlyonce-client-')), 'keys.json')
    const code = `
      const { Client, FileKeys } = await import('onlyonce/client')
      const die = () => process.kill(process.pid, 'SIGKILL')
      const fetch = async (...args) => { await globalThis.fetch(...args); die() }
      await new Client({ keys: new FileKeys(process.argv[1]), fetch }).send('cart 7', process.argv[2], { body: process.argv[3] })`
    const { spawn } = await import('node:child_process')
    const child = spawn(process.execPath, ['--input-type=module', '-e', code, path, url, body], { stdio: 'inherit' })
    const signal = await new Promise((resolve) => child.on('exit', (_code, signal) => resolve(signal)))
    const kept = JSON.parse(readFileSync(path, 'utf8'))['cart 7']

    const client = new Client({ keys: new FileKeys(path) })
    const response = await client.send('cart 7', url, { body })

    assert.equal(signal, 'SIGKILL')
    assert.equal(await response.text(), 'order 1')
    assert.deepEqual([...shop.keys], [kept.key])
    assert.equal(shop.runs, 1)
    assert.deepEqual(JSON.parse(readFileSync(path, 'utf8')), {})
  }))

test('every key of first sends at once is in the file, which was there before', async () => {
  const path = join(mkdtempSync(join(tmpdir(), 'onlyonce-client-')), 'keys.json')
  writeFileSync(path, '{"an older cart":{"key":"k","digest":"d","sent":true}}')
  const sent = []
  const lost = async (_url, init) => {
    sent.push(init.headers['Idempotency-Key'])
    throw new TypeError('the connection was lost')
  }
  const client = new Client({ keys: new FileKeys(path), fetch: lost, sleep: quick, attempts: 1 })
  const carts = ['cart 1', 'cart 2', 'cart 3', 'cart 4']

  await Promise.allSettled(carts.map((cart) => client.send(cart, 'http://shop/', { body })))
  const kept = JSON.parse(readFileSync(path, 'utf8'))

  assert.deepEqual(Object.keys(kept).sort(), ['an older cart', ...carts])
  assert.deepEqual(carts.map((cart) => kept[cart].key).sort(), sent.sort())
})

test('a file of keys that could not be read is read again', async () => {
  const path = join(mkdtempSync(join(tmpdir(), 'onlyonce-client-')), 'keys.json')
  writeFileSync(path, '{"cart 1"')
  const keys = new FileKeys(path)

  await assert.rejects(keys.get('cart 1'), SyntaxError)
  writeFileSync(path, '{"cart 1":"its key"}')

  assert.equal(await keys.get('cart 1'), 'its key')
})

test('two clients of one process have one key for one intention', async () => {
  const keys = new MemoryKeys()
  const get = keys.get.bind(keys)
  keys.get = async (name) => {
    const found = await get(name)
    await new Promise((resolve) => setTimeout(resolve, 20))
    return found
  }
  const sent = []
  const lost = async (_url, init) => {
    sent.push(init.headers['Idempotency-Key'])
    throw new TypeError('the connection was lost')
  }
  const asked = [1, 2].map(() => new Client({ keys, fetch: lost, attempts: 1 }).send('cart 7', 'http://shop/', { body }))

  await Promise.allSettled(asked)

  assert.deepEqual([sent.length, new Set(sent).size], [2, 1])
})

test('IndexedDB keeps keys over a reload of the page', () =>
  served({}, async (url, shop) => {
    const factory = new IDBFactory()
    const page = (fetching, attempts) =>
      new Client({ keys: new IndexedDBKeys('shop', factory), fetch: fetching, sleep: quick, attempts })

    await assert.rejects(page(losing(9), 1).send('cart 7', url, { body }), UnansweredError)
    await assert.rejects(page(fetch, 1).send('cart 7', url, { body: '{"cents":6}' }), ChangedError)
    const response = await page(fetch, 1).send('cart 7', url, { body })

    assert.equal(await response.text(), 'order 1')
    assert.deepEqual([shop.runs, shop.keys.size], [1, 1])
  }))

test('two clicks are one request', () =>
  served({}, async (url, shop) => {
    const client = new Client({ keys: new MemoryKeys() })

    const both = await Promise.all([client.send('cart 7', url, { body }), client.send('cart 7', url, { body })])

    assert.deepEqual(await Promise.all(both.map((it) => it.text())), ['order 1', 'order 1'])
    assert.deepEqual([shop.runs, client.counts.sent], [1, 1])
  }))

/** A fetch that gives these answers one after the other. */
function answering(...answers) {
  const sent = []
  const fetching = async (_url, init) => {
    sent.push(init.headers['Idempotency-Key'])
    const [status, headers, problem] = answers[Math.min(sent.length, answers.length) - 1]
    return new Response(problem ? JSON.stringify(problem) : null, { status, headers })
  }
  return { fetching, sent }
}

test('Retry-After is honoured, an operation in progress is awaited, and a mismatch is never retried', async () => {
  const waits = []
  const sleep = async (wait) => waits.push(wait)
  const ask = (...answers) => {
    const { fetching, sent } = answering(...answers)
    const client = new Client({ keys: new MemoryKeys(), fetch: fetching, sleep })
    return { asked: client.send('x', 'http://shop/', { body }), sent }
  }

  await ask([503, { 'retry-after': '7' }], [200]).asked
  assert.deepEqual(waits.splice(0), [7000])
  const running = [409, {}, { error: { code: 'CONCURRENT_REQUEST' } }]
  const patient = ask(running, running, running, running, [200])
  await patient.asked
  assert.deepEqual(waits.splice(0), [2000, 2000, 2000, 2000])
  assert.equal(new Set(patient.sent).size, 1)
  for (const mismatch of [
    [422, {}],
    [409, { 'retry-after': '1' }, { error: { type: 'conflict', retryable: false } }],
    [400, {}, { error: { type: 'idempotency_error' } }],
  ]) {
    const { asked, sent } = ask(mismatch)
    await assert.rejects(asked, RefusedError)
    assert.equal(sent.length, 1)
  }
  await assert.rejects(ask([500]).asked, UnansweredError)
  assert.equal(waits.length, 2)
  assert.equal(retryAfter('Wed, 18 Nov 2026 08:00:10 GMT', Date.parse('Wed, 18 Nov 2026 08:00:00 GMT')), 10_000)
})

/** A web server that gives these answers to POST, and a friendly page to every GET. */
async function network(answers, work) {
  const asked = []
  const server = createServer((request, response) => {
    asked.push([request.method, request.headers['idempotency-key']])
    if (request.method === 'GET') {
      response.setHeader('content-type', 'text/html').end('<h1>Welcome to the hotel</h1>')
      return
    }
    const [status, headers, text] = answers[Math.min(asked.length, answers.length) - 1]
    request.resume().on('end', () => response.writeHead(status, headers).end(text))
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  try {
    await work(`http://127.0.0.1:${server.address().port}/orders`, asked)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

const page = [200, { 'content-type': 'text/html; charset=utf-8' }, '<h1>Sign in</h1>']
for (const [what, answer] of [
  ['a redirect to a login page', [302, { location: '/login' }]],
  ['a redirect that keeps the method', [307, { location: '/elsewhere' }]],
  ['a page of a captive portal', page],
  ['a network that wants a sign-in', [511, {}]],
]) {
  test(`${what} is no answer of the service, and the key is kept`, () =>
    network([answer, answer, answer, [201, {}, 'order 1']], async (url, asked) => {
      const client = new Client({ keys: new MemoryKeys(), sleep: quick })

      await assert.rejects(client.send('cart 7', url, { body }), UnansweredError)
      const response = await client.send('cart 7', url, { body })

      assert.equal(await response.text(), 'order 1')
      assert.deepEqual(new Set(asked.map(([method]) => method)), new Set(['POST']))
      assert.equal(new Set(asked.map(([, key]) => key)).size, 1)
    }))
}

test('a service that answers with pages is believed where that is asked for', () =>
  network([page], async (url) => {
    const client = new Client({ keys: new MemoryKeys(), pages: true })
    assert.equal(await (await client.send('cart 7', url, { body })).text(), '<h1>Sign in</h1>')
    const asking = { body, headers: { accept: 'text/html' } }
    assert.equal((await new Client({ keys: new MemoryKeys() }).send('cart 7', url, asking)).status, 200)
  }))

for (const [what, status, problem] of [
  ['a sign-in that has expired', 401, undefined],
  ['an outcome that is unknown', 409, { type: 'urn:onlyonce:problem:outcome-unknown', retryable: false }],
  ['an outcome that is unknown, as stripe words it', 409, { error: { type: 'idempotency_error' } }],
]) {
  test(`${what} settles nothing: the next try has the same key`, async () => {
    const { fetching, sent } = answering([status, {}, problem], [201])
    const client = new Client({ keys: new MemoryKeys(), fetch: fetching })

    await assert.rejects(client.send('x', 'http://shop/', { body }), (error) => error.isKept === true)
    await client.send('x', 'http://shop/', { body })

    assert.equal(new Set(sent).size, 1)
  })
}

/** What breaks off after its head: `ok`, and the body never ends. */
function breakingOff(status) {
  const body = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode('half an ans'))
    },
    pull(controller) {
      controller.error(new TypeError('terminated'))
    },
  })
  return new Response(body, { status })
}

test('an answer that breaks off settles nothing: the rest of it is asked for with the same key', async () => {
  const sent = []
  const fetching = async (_url, init) => {
    sent.push(init.headers['Idempotency-Key'])
    return sent.length === 1 ? breakingOff(201) : new Response('order 1', { status: 201 })
  }
  const client = new Client({ keys: new MemoryKeys(), fetch: fetching, sleep: quick })

  const response = await client.send('cart 7', 'http://shop/', { body })

  assert.equal(await response.text(), 'order 1')
  assert.deepEqual([sent.length, new Set(sent).size], [2, 1])
})

for (const [profile, status, problem] of [
  ['acp', 409, { type: 'processing_error', code: 'outcome_unknown', message: '' }],
  ['paypal', 409, { name: 'RESOURCE_CONFLICT', details: [{ issue: 'OUTCOME_UNKNOWN' }] }],
  ['square', 409, { errors: [{ category: 'API_ERROR', code: 'OUTCOME_UNKNOWN' }] }],
  ['repeatable-requests', 409, { error: { code: 'OutcomeUnknown', message: '' } }],
  ['guardian', 409, { error: { code: 'OUTCOME_UNKNOWN', message: '' } }],
  ['standard: a gateway that lost its service', 502, { type: 'urn:onlyonce:problem:bad-gateway', retryable: false }],
  ['standard: an operation that took too long', 504, { type: 'urn:onlyonce:problem:timed-out', retryable: false }],
  ['standard: a key that is too old', 400, { type: 'urn:onlyonce:problem:key-out-of-time', retryable: false }],
]) {
  test(`doubt settles nothing, in the words of ${profile}`, async () => {
    const { fetching, sent } = answering([status, {}, problem], [201])
    const client = new Client({ keys: new MemoryKeys(), fetch: fetching, sleep: quick })

    await assert.rejects(client.send('x', 'http://shop/', { body }), (error) => error.isKept === true)
    await client.send('x', 'http://shop/', { body })

    assert.equal(new Set(sent).size, 1)
  })
}

test('what runs is awaited in the words of every profile, and never without a pause', async () => {
  const waits = []
  for (const [headers, problem] of [
    [{ 'retry-after': '0' }, { error: { code: 'RequestInProgress' } }],
    [{ 'retry-after': '99999999' }, { type: 'invalid_request', code: 'idempotency_in_flight' }],
    [{}, { details: [{ issue: 'PREVIOUS_REQUEST_IN_PROGRESS' }] }],
  ]) {
    const { fetching } = answering([409, headers, problem], [201])
    const client = new Client({ keys: new MemoryKeys(), fetch: fetching, sleep: async (wait) => waits.push(wait) })
    assert.equal((await client.send('x', 'http://shop/', { body })).status, 201)
  }
  assert.deepEqual(waits, [100, 3_600_000, 2000])
})

test('a second request with other data meanwhile is not given the first one its answer', async () => {
  let answer
  const answered = new Promise((resolve) => {
    answer = resolve
  })
  const client = new Client({ keys: new MemoryKeys(), fetch: () => answered })

  const first = client.send('cart 7', 'http://shop/', { body })
  const other = client.send('cart 7', 'http://shop/', { body: '{"cents":6}' })

  await assert.rejects(other, ChangedError)
  answer(new Response('order 1', { status: 201 }))
  assert.equal((await first).status, 201)
  assert.equal(client.counts.sent, 1)
})

test('an answer that comes late drops its own key alone', async () => {
  const keys = new MemoryKeys()
  const fetching = async () => {
    // Another tab was answered meanwhile, and has begun the same intention again.
    await keys.put('cart 7', { key: 'of another tab', digest: '', sent: true })
    return new Response('order 1')
  }

  await new Client({ keys, fetch: fetching }).send('cart 7', 'http://shop/', { body })

  assert.equal((await keys.get('cart 7')).key, 'of another tab')
})

test('an answer of the service, good or bad, settles an intention', async () => {
  const { fetching, sent } = answering([402, {}, { detail: 'no money' }], [201])
  const client = new Client({ keys: new MemoryKeys(), fetch: fetching })

  await assert.rejects(client.send('x', 'http://shop/', { body }), (error) => error.isKept === false)
  await client.send('x', 'http://shop/', { body: '{"cents":4}' })

  assert.equal(new Set(sent).size, 2)
})

test('a running operation that is told by 202 is awaited', async () => {
  const running = [202, { 'retry-after': '1' }, { type: 'in-progress' }]
  const { fetching, sent } = answering(running, running, [201])
  const client = new Client({ keys: new MemoryKeys(), fetch: fetching, sleep: quick })

  assert.equal((await client.send('x', 'http://shop/', { body })).status, 201)
  assert.equal(sent.length, 3)
})

test('who aborts is not retried', async () => {
  const abort = new AbortController()
  const fetching = (_url, { signal }) =>
    new Promise((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason))
      abort.abort(new Error('enough'))
    })
  const client = new Client({ keys: new MemoryKeys(), fetch: fetching })

  const asked = client.send('x', 'http://shop/', { body, signal: abort.signal })

  await assert.rejects(asked, /enough/)
  assert.equal(client.counts.sent, 1)
})

test('a form sends one request for one intention', () =>
  served({}, async (url, shop) => {
    const button = { disabled: false }
    const form = new EventTarget()
    Object.assign(form, { action: url, querySelectorAll: () => [button] })
    globalThis.FormData = class extends Map {
      constructor() {
        super([['cents', '5']])
      }
    }
    const answers = []
    const client = new Client({ keys: new MemoryKeys() })
    const off = protectForm(form, { client, onAnswer: (response) => answers.push(response) })

    form.dispatchEvent(new Event('submit', { cancelable: true }))
    form.dispatchEvent(new Event('submit', { cancelable: true }))
    while (answers.length < 2) await new Promise((resolve) => setTimeout(resolve, 10))
    off()

    assert.deepEqual([shop.runs, button.disabled], [1, false])
  }))

test('a form loses no value of a field, and a file is not sent as nothing', async () => {
  const form = new EventTarget()
  Object.assign(form, { action: 'http://shop/', querySelectorAll: () => [] })
  const submitted = async (fields) => {
    globalThis.FormData = class extends Array {
      constructor() {
        super(...fields)
      }
    }
    const bodies = []
    const fetching = async (_url, init) => {
      bodies.push(init.body)
      return new Response()
    }
    const client = new Client({ keys: new MemoryKeys(), fetch: fetching })
    const ended = new Promise((resolve) => {
      const off = protectForm(form, { client, onAnswer: () => resolve(off()), onError: (error) => resolve(off() ?? error) })
    })
    form.dispatchEvent(new Event('submit', { cancelable: true }))
    return { error: await ended, bodies }
  }

  const several = await submitted([['size', 'L'], ['extra', 'a'], ['extra', 'b'], ['extra', 'c']])
  const file = await submitted([['size', 'L'], ['photo', new Blob(['x'])]])

  assert.deepEqual(several.bodies, ['{"size":"L","extra":["a","b","c"]}'])
  assert.ok(file.error instanceof TypeError)
  assert.deepEqual(file.bodies, [])
})

test('it loads without native code', () => {
  const code = `
    const { Client } = await import('onlyonce/client')
    if (Object.keys((await import('node:module')).default._cache).some((it) => it.endsWith('.node'))) process.exit(1)
    new Client()`
  const loaded = spawnSync(process.execPath, ['--input-type=module', '-e', code], { encoding: 'utf8' })
  assert.equal(loaded.status, 0, loaded.stderr)
})
