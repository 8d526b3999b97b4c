// What a key costs in Node: functions, and an Express handler, bare, with us, and with express-idempotency.
//
// Functions are called in this process. Each server is a process of its own, with records in memory; this one
// asks it over connections that are kept. Subjects take turns, so that a busy machine is busy for all of them; each
// figure is the median of the rounds. CPU counts every thread of the process that serves.
//
// It needs what package.json beside this file names, and the tarball that `cargo xtask package node` makes, in one
// folder with this file.
'use strict'

const { randomUUID } = require('node:crypto')
const { fork } = require('node:child_process')
const http = require('node:http')
const os = require('node:os')
const { parseArgs } = require('node:util')
const { Engine } = require('onlyonce')

const US = 'onlyonce'
const BARE = 'bare'
const ANSWER = JSON.stringify({ charged: 'r'.repeat(198) })
const CONNECTIONS = 8

/** A server of one subject, as a process of its own. */
async function serve(name) {
  const express = require('express')
  const app = express()
  app.disable('x-powered-by')
  let guard = (handler) => handler
  if (name === US) app.use((await Engine.open('memory:')).express())
  app.use(express.json())
  if (name === 'express-idempotency') {
    const { idempotency, getSharedIdempotencyService } = require('express-idempotency')
    app.use(idempotency())
    // The middleware goes on to the handler in any case, and the handler has to ask.
    guard = (handler) => (request, response) => {
      if (!getSharedIdempotencyService().isHit(request)) handler(request, response)
    }
  }
  app.post('/charges', guard((_, response) => response.status(201).type('json').send(ANSWER)))
  app.get('/cpu', (_, response) => {
    const { user, system } = process.cpuUsage()
    response.json(user + system)
  })
  const server = app.listen(0, '127.0.0.1', () => process.send(server.address().port))
  process.on('disconnect', () => process.exit(0))
}

const agent = new http.Agent({ keepAlive: true, maxSockets: CONNECTIONS })

function ask(port, method, path, key) {
  return new Promise((resolve, reject) => {
    const headers = key && { 'content-type': 'application/json', 'idempotency-key': key }
    const request = http.request({ host: '127.0.0.1', port, method, path, headers, agent }, (response) => {
      let text = ''
      response.on('data', (piece) => {
        text += piece
      })
      response.on('end', () => {
        if (response.statusCode > 201) reject(new Error(`${path}: ${response.statusCode} ${text}`))
        else resolve(text)
      })
    })
    request.on('error', reject)
    request.end(key ? '{"cents":500}' : undefined)
  })
}

/** A server that runs, as a subject to measure. */
async function server(name) {
  const child = fork(__filename, ['--serve', name])
  const port = await new Promise((resolve) => child.once('message', resolve))
  const run = async (keys) => {
    const left = keys.slice()
    const sending = async () => {
      for (let key = left.pop(); key; key = left.pop()) await ask(port, 'POST', '/charges', key)
    }
    await Promise.all(Array.from({ length: CONNECTIONS }, sending))
  }
  return { run, cpu: async () => Number(await ask(port, 'GET', '/cpu')), end: () => child.disconnect() }
}

/** A function of this process, as a subject to measure. */
function here(call) {
  const run = async (keys) => {
    for (const key of keys) await call(key)
  }
  const cpu = async () => {
    const { user, system } = process.cpuUsage()
    return user + system
  }
  return { run, cpu, end: () => {} }
}

/** Microseconds per call: of time, and of CPU. */
async function measured(subject, keys) {
  const cpu = await subject.cpu()
  const began = performance.now()
  await subject.run(keys)
  const took = (performance.now() - began) * 1000
  return [took / keys.length, ((await subject.cpu()) - cpu) / keys.length]
}

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]

async function report(kind, subjects, { rounds, calls }) {
  const figures = new Map(Object.keys(subjects).map((name) => [name, [[], []]]))
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, subject] of Object.entries(subjects)) {
      const keys = Array.from({ length: calls }, () => randomUUID())
      figures.get(name)[0].push(await measured(subject, keys))
      figures.get(name)[1].push(await measured(subject, keys))
    }
  }
  const middle = new Map()
  for (const [name, parts] of figures) {
    middle.set(name, parts.map((part) => [0, 1].map((at) => median(part.map((it) => it[at])))))
  }
  const heading = ['new key', 'CPU', 'of us', 'replay', 'CPU', 'of us']
  console.log(`\n${kind}\n${' '.repeat(24)}${heading.map((it) => it.padStart(11)).join('')}`)
  for (const [name, parts] of middle) {
    const cells = parts.flatMap(([time, cpu], at) => {
      const ratio = time / middle.get(US)[at][0]
      return [`${time.toFixed(1)}µs`, `${cpu.toFixed(1)}µs`, `${ratio.toFixed(2)}×`]
    })
    console.log(`  ${name.padEnd(22)}${cells.map((it) => it.padStart(11)).join('')}`)
  }
}

async function main(options) {
  const load = () => os.loadavg()[0].toFixed(1)
  console.log(`Node ${process.version}, load ${load()} on ${os.cpus().length} cores at the start`)
  const engine = await Engine.open('memory:')
  const charge = async (order) => ({ order })
  const once = engine.once({ key: (order) => order, name: 'charge' }, charge)
  await report('function', { [BARE]: here(charge), [US]: here(once) }, options)
  const servers = {}
  for (const name of [BARE, US, 'express-idempotency']) servers[name] = await server(name)
  await report('Express handler', servers, options)
  for (const one of Object.values(servers)) one.end()
  agent.destroy()
  await engine.close()
  console.log(`\nload ${load()} at the end; a machine with more load than its cores less one measures its other work`)
}

const { values } = parseArgs({
  options: {
    serve: { type: 'string' },
    rounds: { type: 'string', default: '7' },
    calls: { type: 'string', default: '2000' },
  },
})
if (values.serve) serve(values.serve)
else main({ rounds: Number(values.rounds), calls: Number(values.calls) })
