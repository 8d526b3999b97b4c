// The middleware, over real connections.
'use strict'

const assert = require('node:assert/strict')
const http = require('node:http')
const net = require('node:net')
const { test } = require('node:test')
const { setTimeout: sleep } = require('node:timers/promises')
const express = require('express')
const fastify = require('fastify')
const { Engine } = require('onlyonce')

const KEY = { 'idempotency-key': '7c9e6679-7425-40de-944b-e07fc1f90ae7' }

/** Serves an Express application behind the middleware while `work` runs. */
async function served(options, work, prepare = () => {}) {
  const engine = await Engine.open('memory:')
  const shop = { runs: 0, started: false }
  const app = express()
  app.use(engine.express(options))
  app.use(express.json())
  app.post('/charges', (request, response) => {
    shop.runs += 1
    const keys = ['charge', 'charge', 'mail'].map((name) => request.onlyonce?.downstream(name))
    if (request.onlyonce) assert.deepEqual([keys[0] === keys[1], keys[0] === keys[2]], [true, false])
    response.status(201).json({ run: shop.runs, body: request.body ?? null, attempt: request.onlyonce?.attempt })
  })
  app.post('/slow', async (_request, response) => {
    shop.started = true
    await sleep(150)
    shop.runs += 1
    response.json({ run: shop.runs })
  })
  app.post('/throws', () => {
    shop.runs += 1
    throw new RangeError('a bug')
  })
  app.post('/large', (_request, response) => {
    shop.runs += 1
    const piece = Buffer.alloc(65536, 120)
    let left = 64
    const more = () => {
      while (left > 0) {
        left -= 1
        if (!response.write(piece)) return response.once('drain', more)
      }
      response.end()
    }
    more()
  })
  app.post('/breaks', (_request, response) => {
    shop.runs += 1
    response.write('start')
    setImmediate(() => response.destroy())
  })
  app.get('/opted-out', (_request, response) => response.set('idempotency-store', 'no').send('x'))
  prepare(app, shop)
  app.use((_error, _request, response, _next) => response.status(500).json({ error: 'a bug' }))
  const server = http.createServer(app).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const url = `http://127.0.0.1:${server.address().port}`
  const post = (path, body, headers = KEY) =>
    fetch(url + path, {
      method: 'POST',
      headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    })
  try {
    await work({ url, post, shop, engine })
  } finally {
    server.closeAllConnections()
    server.close()
    await engine.close()
  }
}

test('a retry gets the first answer, and another request under its key does not', () =>
  served({}, async ({ post }) => {
    const first = await post('/charges', { cents: 5 })
    const again = await post('/charges', { cents: 5 })
    const other = await post('/charges', { cents: 6 })

    const body = await first.text()
    assert.equal(first.status, 201)
    assert.deepEqual(JSON.parse(body), { run: 1, body: { cents: 5 }, attempt: 1 })
    assert.equal(again.headers.get('idempotent-replayed'), 'true')
    assert.equal(await again.text(), body)
    assert.equal(other.status, 422)
    assert.equal((await (await post('/charges', undefined, {})).json()).run, 2)
  }))

test('64 duplicates share one run', () =>
  served({}, async ({ post, shop }) => {
    const answers = await Promise.all(Array.from({ length: 64 }, () => post('/slow')))
    const bodies = await Promise.all(answers.map((it) => it.text()))

    assert.equal(shop.runs, 1)
    assert.deepEqual(new Set(bodies), new Set(['{"run":1}']))
  }))

test('a failure is stored as the profile says', async () => {
  const runs = async (profile) => {
    let counted
    await served({ profile }, async ({ post, shop }) => {
      for (let i = 0; i < 2; i++) assert.equal((await post('/throws')).status, 500)
      counted = shop.runs
    })
    return counted
  }

  assert.equal(await runs('middleware'), 1)
  assert.equal(await runs('formbridge'), 2)
})

test('a client that goes away does not stop the handler', () =>
  served({}, async ({ url, post, shop }) => {
    const abort = new AbortController()
    const call = fetch(`${url}/slow`, { method: 'POST', headers: KEY, signal: abort.signal })
    while (!shop.started) await sleep(1)
    abort.abort()
    await assert.rejects(call)

    const again = await post('/slow')
    assert.equal(again.headers.get('idempotent-replayed'), 'true')
    assert.deepEqual(await again.json(), { run: 1 })
    assert.equal(shop.runs, 1)
  }))

test('large bodies are bounded in both directions', () =>
  served({}, async ({ post, shop }) => {
    const tooLarge = await post('/charges', { text: 'x'.repeat(2 << 20) })
    const first = await post('/large')
    const length = (await first.arrayBuffer()).byteLength
    const again = await post('/large')

    assert.equal(tooLarge.status, 413)
    assert.deepEqual([first.status, length], [200, 64 * 65536])
    assert.equal(again.status, 507)
    assert.equal(shop.runs, 1)
  }))

test('a response that breaks off is not taken for a whole one', () =>
  served({}, async ({ post, engine }) => {
    await assert.rejects(post('/breaks').then((broken) => broken.text()))

    assert.equal(engine.inFlight, 0)
  }))

test('a request that breaks off does not run', () =>
  served({}, async ({ url, shop, engine }) => {
    const request = http.request(`${url}/charges`, { method: 'POST', headers: { ...KEY, 'content-length': 100 } })
    request.on('error', () => {})
    request.write('half')
    await sleep(50)
    request.destroy()
    await sleep(50)

    assert.equal(shop.runs, 0)
    assert.equal(engine.inFlight, 0)
  }))

test('what is not covered passes, and a body that was read before is told', async () => {
  await served({}, async ({ url }) => {
    const opted = await fetch(`${url}/opted-out`)
    assert.equal(opted.headers.get('idempotency-store'), null)
  })
  const engine = await Engine.open('memory:')
  const app = express()
  app.use(express.json(), engine.express())
  app.use((error, _request, response, _next) => response.status(500).send(error.message))
  const server = http.createServer(app).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const headers = { ...KEY, 'content-type': 'application/json' }
  const late = await fetch(`http://127.0.0.1:${server.address().port}/`, { method: 'POST', headers, body: '{}' })
  assert.match(await late.text(), /before anything that reads the body/)
  server.closeAllConnections()
  server.close()
  await engine.close()
})

test('what is no request, or of a caller who cannot be read, is answered and ends nothing', async () => {
  const engine = await Engine.open('memory:')
  const principal = (request) => {
    if (request.headers['x-user'] === undefined) throw new RangeError('who is this?')
    return request.headers['x-user']
  }
  const listener = engine.listener((_request, response) => response.end('fine'), { principal })
  const server = http.createServer(listener).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const status = (target, more) =>
    new Promise((resolve) => {
      let said = ''
      const socket = net.connect(server.address().port, '127.0.0.1')
      socket.write(`GET ${target} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n${more}\r\n`)
      socket.on('data', (piece) => {
        said += piece
      })
      socket.on('close', () => resolve(said.slice(9, 12)))
    })

  assert.equal(await status('/<', 'x-user: ada\r\n'), '400')
  assert.equal(await status('/', ''), '500')
  assert.equal(await status('/', 'x-user: ada\r\n'), '200')
  server.closeAllConnections()
  server.close()
  await engine.close()
})

test('an answer that is to be marked is not asked for compressed', async () => {
  for (const [profile, wanted] of [['standard', 'gzip'], ['broker', 'identity']]) {
    const asked = []
    const prepare = (app) =>
      app.post('/encoded', (request, response) => {
        asked.push(request.headers['accept-encoding'])
        response.json({})
      })
    await served({ profile }, ({ post }) => post('/encoded', {}, { ...KEY, 'accept-encoding': 'gzip' }), prepare)
    assert.deepEqual(asked, [wanted])
  }
})

/** A service whose first hooks allow a web page, count requests and set a cookie, before the middleware. */
const withHeaders = {
  async express(engine) {
    const app = express()
    let requests = 0
    app.use((request, response, next) => {
      response.set({ 'access-control-allow-origin': request.headers.origin, 'x-request': ++requests, 'x-draft': 'yes' })
      response.append('set-cookie', 'visit=1')
      next()
    })
    app.use(engine.express())
    app.use(express.json())
    app.post('/charges', (request, response) => {
      response.removeHeader('x-draft')
      response.append('set-cookie', 'order=1').status(201).json(request.body)
    })
    return http.createServer(app)
  },

  async fastify(engine) {
    const app = fastify()
    let requests = 0
    app.addHook('onRequest', async (request, reply) => {
      reply.headers({ 'access-control-allow-origin': request.headers.origin, 'x-request': ++requests, 'x-draft': 'yes' })
      reply.header('set-cookie', 'visit=1')
    })
    app.register(engine.fastify())
    app.post('/charges', (request, reply) => {
      reply.removeHeader('x-draft')
      reply.header('set-cookie', 'order=1').code(201).send(request.body)
    })
    await app.ready()
    return app.server
  },
}

for (const framework of Object.keys(withHeaders)) {
  test(`${framework}: headers that were set before the middleware are of each request, and are not stored`, async () => {
    const engine = await Engine.open('memory:')
    const server = (await withHeaders[framework](engine)).listen(0, '127.0.0.1')
    await new Promise((resolve) => server.once('listening', resolve))
    const asked = async (origin, cents) => {
      const response = await fetch(`http://127.0.0.1:${server.address().port}/charges`, {
        method: 'POST',
        headers: { ...KEY, origin, 'content-type': 'application/json' },
        body: JSON.stringify({ cents }),
      })
      const header = (name) => response.headers.get(name)
      const said = ['access-control-allow-origin', 'x-request', 'x-draft', 'idempotent-replayed'].map(header)
      return [response.status, ...said, response.headers.getSetCookie()]
    }

    const first = await asked('https://a.example', 5)
    const again = await asked('https://b.example', 5)
    const refused = await asked('https://c.example', 6)
    server.closeAllConnections()
    server.close()
    await engine.close()

    const cookies = ['visit=1', 'order=1']
    assert.deepEqual(first, [201, 'https://a.example', '1', null, null, cookies])
    assert.deepEqual(again.slice(0, 3), [201, 'https://b.example', '2'])
    assert.equal(again[4], 'true')
    assert.deepEqual(refused, [422, 'https://c.example', '3', 'yes', null, ['visit=1']])
  })
}

test('callers are told apart by who they are', () =>
  served({ principal: (request) => request.headers['x-user'] }, async ({ post }) => {
    const runs = []
    for (const user of ['ada', 'bob', 'ada']) {
      runs.push((await (await post('/charges', {}, { ...KEY, 'x-user': user })).json()).run)
    }
    assert.deepEqual(runs, [1, 2, 1])
  }))

test('a function from Request to Response answers each key once', async () => {
  const engine = await Engine.open('memory:')
  let runs = 0
  const handler = engine.fetch(async (request) => {
    runs += 1
    if (request.url.endsWith('/throws')) throw new RangeError('a bug')
    return Response.json({ run: runs, text: await request.text(), attempt: request.onlyonce?.attempt })
  })
  const call = (path) => handler(new Request(`http://shop${path}`, { method: 'POST', headers: KEY, body: 'abc' }))

  const first = await call('/charges')
  const again = await call('/charges')

  assert.deepEqual(await first.json(), { run: 1, text: 'abc', attempt: 1 })
  assert.deepEqual(await again.json(), { run: 1, text: 'abc', attempt: 1 })
  assert.equal(again.headers.get('idempotent-replayed'), 'true')
  assert.equal((await call('/other')).status, 422)
  await engine.close()
})

test('a handler gets the class of request that its framework made, with what a router put on it', async () => {
  class Asked extends Request {
    get cookies() {
      return this.headers.get('cookie')
    }
  }
  const engine = await Engine.open('memory:')
  const seen = []
  const handler = engine.fetch(async (request) => {
    seen.push([request instanceof Asked, request.cookies, request.params?.order, await request.text()])
    return new Response('fine')
  })
  const asked = new Asked('http://shop/orders/7', { method: 'POST', headers: { ...KEY, cookie: 'a=1' }, body: 'abc' })
  asked.params = { order: '7' }
  const bound = (target, name) => {
    const value = Reflect.get(target, name, target)
    return typeof value === 'function' ? value.bind(target) : value
  }

  await handler(new Proxy(asked, { get: bound }))

  assert.deepEqual(seen, [[true, 'a=1', '7', 'abc']])
  await engine.close()
})

test('two keys are refused though Headers joins them, and a quoted comma is of one key', async () => {
  const engine = await Engine.open('memory:')
  let runs = 0
  const handler = engine.fetch(async () => Response.json({ run: ++runs }), { profile: 'ietf' })
  const asked = async (...keys) => {
    const headers = new Headers(keys.map((key) => ['idempotency-key', key]))
    return (await handler(new Request('http://shop/charges', { method: 'POST', headers, body: 'abc' }))).status
  }

  assert.equal(await asked('a', 'b'), 400)
  assert.equal(await asked('"a"', '"a"'), 400)
  assert.equal(await asked('"a,b"'), 200)
  assert.equal(runs, 1)
  await engine.close()
})
