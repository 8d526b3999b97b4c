// A shop behind the middleware, with everything in its answers that a replay can get wrong.
'use strict'

const { createServer } = require('node:http')
const { appendFileSync } = require('node:fs')
const { parseArgs } = require('node:util')
const { Engine } = require('onlyonce')

const { values } = parseArgs({
  options: {
    framework: { type: 'string', default: 'express' },
    profile: { type: 'string' },
    rules: { type: 'string' },
    store: { type: 'string', default: 'memory:' },
    effects: { type: 'string' },
  },
})

let orders = 0

/** A new order: its number is in the body, in its address and wherever else it may go wrong. */
function order(type, body) {
  orders += 1
  if (values.effects) appendFileSync(values.effects, 'node\n')
  const isBinary = type === 'application/octet-stream'
  const number = Buffer.alloc(8)
  number.writeBigUInt64BE(BigInt(orders))
  return {
    body: isBinary ? Buffer.concat([number, body]) : Buffer.from(`{"order":${orders},"bytes":${body.length}}`),
    headers: {
      'content-type': isBinary ? type : 'application/json',
      location: `/orders/${orders}`,
      etag: `"${orders}"`,
      link: ['</orders>; rel=collection', '</help>; rel=help'],
      'set-cookie': `session=${orders}`,
    },
  }
}

const slowly = (path) => new Promise((resolve) => setTimeout(resolve, path.startsWith('/slow') ? 300 : 0))

const frameworks = {
  express(engine, options) {
    const express = require('express')
    const app = express()
    app.use(engine.express(options))
    app.use(express.raw({ type: () => true, limit: '8mb' }))
    app.post(['/orders', '/slow', '/stuck'], async (request, response) => {
      await slowly(request.path)
      const made = order(request.headers['content-type'], Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0))
      response.status(201).set(made.headers).send(made.body)
    })
    return createServer(app)
  },

  async fastify(engine, options) {
    const fastify = require('fastify')({ bodyLimit: 8 << 20 })
    fastify.register(engine.fastify(options))
    fastify.removeAllContentTypeParsers()
    fastify.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
    const handler = async (request, reply) => {
      await slowly(request.url)
      const made = order(request.headers['content-type'], request.body ?? Buffer.alloc(0))
      return reply.code(201).headers(made.headers).send(made.body)
    }
    fastify.post('/orders', handler)
    fastify.post('/slow', handler)
    await fastify.ready()
    return fastify.server
  },

  async hono(engine, options) {
    const { Hono } = require('hono')
    const { createAdaptorServer } = require('@hono/node-server')
    const app = new Hono()
    const handler = async (context) => {
      await slowly(context.req.path)
      const body = Buffer.from(await context.req.arrayBuffer())
      const made = order(context.req.header('content-type'), body)
      const response = new Response(made.body, { status: 201 })
      for (const [name, value] of Object.entries(made.headers)) {
        // The adapter's Response has a content type already.
        response.headers.delete(name)
        for (const one of [].concat(value)) response.headers.append(name, one)
      }
      return response
    }
    app.post('/orders', handler)
    app.post('/slow', handler)
    return createAdaptorServer({ fetch: engine.fetch(app.fetch, options) })
  },
}

async function main() {
  const engine = await Engine.open(values.store)
  const options = values.rules ? { rules: values.rules } : { profile: values.profile ?? 'standard' }
  const server = await frameworks[values.framework](engine, options)
  server.listen(0, '127.0.0.1', 512, () => console.log(`http://127.0.0.1:${server.address().port}`))
}
main()
