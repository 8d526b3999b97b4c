// Functions that run once per key.
'use strict'

const assert = require('node:assert/strict')
const { spawnSync } = require('node:child_process')
const { mkdtempSync } = require('node:fs')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const { test } = require('node:test')
const { setTimeout: sleep } = require('node:timers/promises')
const { Worker } = require('node:worker_threads')
const onlyonce = require('onlyonce')

const { Engine } = onlyonce
const folder = () => mkdtempSync(join(tmpdir(), 'onlyonce-node-'))

async function withEngine(work) {
  const engine = await Engine.open('memory:')
  try {
    await work(engine)
  } finally {
    await engine.close()
  }
}

test('a function runs once and its repetitions get its value', () =>
  withEngine(async (engine) => {
    let runs = 0
    const charge = engine.once({ key: (order) => order, name: 'charge' }, async (order, cents) => ({ order, cents, run: ++runs }))

    const first = await charge.ran('a', 5)
    const again = await charge.ran('a', 5)

    assert.deepEqual(first, { value: { order: 'a', cents: 5, run: 1 }, replayed: false })
    assert.deepEqual(again, { value: { order: 'a', cents: 5, run: 1 }, replayed: true })
    assert.equal((await charge('b', 5)).run, 2)
    assert.deepEqual(await engine.run('k', () => undefined), { value: null, replayed: false })
  }))

test('the same key with another input is refused', () =>
  withEngine(async (engine) => {
    const charge = engine.once({ key: (order) => order, name: 'charge' }, async (_, cents) => cents)
    await charge('a', 5)

    await assert.rejects(charge('a', 6), (error) => error instanceof onlyonce.Mismatch && error.reason === 'mismatch')
  }))

test('what a function throws is thrown and it runs again', () =>
  withEngine(async (engine) => {
    let runs = 0
    const fail = () => {
      runs += 1
      throw new RangeError('no card')
    }

    for (let i = 0; i < 2; i++) await assert.rejects(engine.run('k', fail), RangeError)

    assert.equal(runs, 2)
  }))

test('64 calls share one run', () =>
  withEngine(async (engine) => {
    let runs = 0
    const slow = async () => {
      runs += 1
      await sleep(100)
      return 'value'
    }

    const all = await Promise.all(Array.from({ length: 64 }, () => engine.run('k', slow)))

    assert.equal(runs, 1)
    assert.deepEqual(new Set(all.map((it) => it.value)), new Set(['value']))
    assert.equal(all.filter((it) => !it.replayed).length, 1)
  }))

test('a step that ended does not run again with the next attempt', () =>
  withEngine(async (engine) => {
    const ran = []
    const effect = async (name) => {
      ran.push(name)
      if (name === 'charge' && ran.length === 2) throw new RangeError('no card')
      return `${name} ${ran.length}`
    }
    const ride = engine.once({ key: (id) => id, name: 'ride' }, async () => {
      const hold = await onlyonce.execution().step('reserve', () => effect('reserve'), { input: 700 })
      return onlyonce.execution().step('charge', () => effect('charge'), { input: hold })
    })

    await assert.rejects(ride('ride-7'), RangeError)

    assert.equal(await ride('ride-7'), 'charge 3')
    assert.deepEqual(ran, ['reserve', 'charge', 'charge'])
  }))

test('a step with another input is refused and a wrong one is told', () =>
  withEngine(async (engine) => {
    let cents = 5
    const charge = async ({ execution }) => {
      await execution.step('charge', () => 1, { input: { cents: cents++ } })
      throw new RangeError('cut off')
    }
    await assert.rejects(engine.run('k', charge), RangeError)
    await assert.rejects(engine.run('k', charge), (error) => {
      return error instanceof onlyonce.Mismatch && /member `cents` has another value/.test(error.message)
    })

    const twice = async ({ execution }) => {
      await execution.step('a', () => 1)
      await execution.step('a', () => 2)
    }
    await assert.rejects(engine.run('l', twice), /give each step a name of its own/)
    assert.throws(() => onlyonce.execution(), /no keyed operation/)
  }))

test('downstream keys are the same for every attempt', () =>
  withEngine(async (engine) => {
    const seen = []
    const work = async ({ execution }) => {
      seen.push([execution.operation, execution.downstream('charge'), typeof execution.lease])
      if (seen.length === 1) throw new RangeError('cut off')
      return execution.attempt
    }

    await assert.rejects(engine.run('k', work), RangeError)
    await engine.run('k', work)

    assert.deepEqual(seen[0], seen[1])
    assert.equal(new Set(seen[0]).size, 3)
  }))

test('a killed process leaves its steps to the next', async () => {
  const store = `sqlite:${join(folder(), 'records.db')}`
  const ended = run(
    `const { Engine, execution } = require('onlyonce')
     Engine.open(process.argv[1]).then((engine) => {
       engine.run('k', async () => {
         await execution().step('reserve', () => 'hold-1')
         await execution().step('charge', () => process.kill(process.pid, 'SIGKILL'))
       }, { lease: 1 })
     })`,
    store,
  )
  assert.equal(ended.signal, 'SIGKILL', ended.stderr)
  const ran = []

  const engine = await Engine.open(store)
  const { value } = await engine.run('k', async ({ execution }) => {
    const hold = await execution.step('reserve', () => ran.push('reserve'))
    return execution.step('charge', () => ran.push('charge') && `charged ${hold}`)
  }, { lease: 1 })
  await engine.close()

  assert.deepEqual([value, ran], ['charged hold-1', ['charge']])
})

test('a caller that aborts does not stop the function', () =>
  withEngine(async (engine) => {
    const slow = async () => {
      await sleep(100)
      return 'value'
    }
    const reason = new Error('no patience')
    const abort = new AbortController()
    const call = engine.run('k', slow, { signal: abort.signal })
    await sleep(10)
    abort.abort(reason)

    await assert.rejects(call, reason)
    assert.deepEqual(await engine.run('k', slow), { value: 'value', replayed: true })
    await assert.rejects(engine.run('l', slow, { signal: AbortSignal.abort(reason) }), reason)
  }))

test('a signal among the arguments ends the waiting, and is no part of the input', () =>
  withEngine(async (engine) => {
    const given = []
    const options = { key: (order) => order, name: 'charge', signal: (_order, { signal } = {}) => signal }
    const charge = engine.once(options, async (order, { signal } = {}) => {
      given.push(signal)
      await sleep(100)
      return order
    })
    const reason = new Error('no patience')
    const abort = new AbortController()
    const call = charge('a', { signal: abort.signal })
    await sleep(10)
    abort.abort(reason)

    await assert.rejects(call, reason)
    assert.deepEqual(await charge.ran('a', { signal: AbortSignal.timeout(5000) }), { value: 'a', replayed: true })
    await assert.rejects(charge('b', { signal: AbortSignal.abort(reason) }), reason)
    assert.deepEqual(given, [abort.signal])

    const last = engine.once({ key: (order) => order, name: 'last', signal: (_order, signal) => signal }, async (order) => order)
    assert.equal((await last.ran('a', AbortSignal.timeout(5000))).replayed, false)
    assert.equal((await last.ran('a')).replayed, true)
  }))

test('an engine that closes takes no more calls and waits for those that run', async () => {
  const engine = await Engine.open('memory:')
  const running = engine.run('k', async () => {
    await sleep(200)
    return 'value'
  })
  await sleep(20)
  const closing = engine.close(5)
  await sleep(20)

  await assert.rejects(engine.run('l', () => 1), (error) => {
    return error instanceof onlyonce.Unavailable && error.reason === 'shutting-down'
  })
  assert.deepEqual(await running, { value: 'value', replayed: false })
  assert.equal(await closing, 0)
  assert.equal(await engine.close(), 0)
})

test('what an engine has to say goes to the application, from a level on and until it is told to stop', async () => {
  const said = []
  const stop = onlyonce.onLog((level, text) => said.push([level, text]), 'debug')
  await withEngine(async (engine) => {
    for (let i = 0; i < 2; i++) await engine.run('a-secret-key-of-some-length', () => 1)
    await sleep(50)
  })
  const levels = new Set(said.map(([level]) => level))

  assert.ok(said.length > 0 && levels.has('info'), JSON.stringify(said))
  assert.ok(said.every(([, text]) => !text.includes('a-secret-key-of-some-length')))
  stop()
  const before = said.length
  await withEngine((engine) => engine.run('another-key', () => 1))
  await sleep(50)
  assert.equal(said.length, before)
  assert.throws(() => onlyonce.onLog(() => {}, 'loud'), /one of debug, info, warn and error/)
  assert.throws(() => onlyonce.onLog('console'), TypeError)
})

test('a function past its deadline is told so and its outcome is unknown', () =>
  withEngine(async (engine) => {
    let told
    const forever = ({ signal }) =>
      new Promise((_, reject) => {
        signal.addEventListener('abort', () => {
          told = signal.reason
          reject(signal.reason)
        })
      })

    await assert.rejects(engine.run('k', forever, { timeout: 1 }), (error) => {
      return error instanceof onlyonce.OutcomeUnknown && error.reason === 'timed-out'
    })
    await sleep(50)
    assert.match(String(told), /deadline/)
  }))

test('a value that is no JSON does not make its function or step run again', () =>
  withEngine(async (engine) => {
    let runs = 0
    const work = (value) => () => {
      runs += 1
      return value
    }
    const isToldSo = (error) => error instanceof onlyonce.NotKept && /ran, but its value could not be kept: /.test(error.message)

    for (const [key, value] of Object.entries({ function: () => 1, bigint: 1n })) {
      const step = () => onlyonce.execution().step('charge', work(value))
      for (let i = 0; i < 2; i++) await assert.rejects(engine.run(key, work(value)), isToldSo)
      for (let i = 0; i < 2; i++) await assert.rejects(engine.run(`step-${key}`, step), isToldSo)
    }

    assert.equal(runs, 4)
  }))

test('wrong use is told with what would be right', () =>
  withEngine(async (engine) => {
    await assert.rejects(Engine.open('reddis://localhost'), /did you mean redis/)
    await assert.rejects(Engine.open('reddis://localhost'), onlyonce.OpenError)
    await assert.rejects(engine.run('', () => 1), onlyonce.KeyInvalid)
    await assert.rejects(engine.run('k', () => 1, { keepFor: -1 }), /keepFor must be/)
    assert.throws(() => engine.once({}, async () => 1), /needs key/)
    assert.throws(() => engine.express({ profile: 'strip' }), onlyonce.OpenError)
    assert.match(engine.metrics(), /idempotency_/)
    await engine.close()
    await assert.rejects(engine.run('k', () => 1), /closed/)
  }))

const run = (code, ...args) => spawnSync(process.execPath, ['-e', code, ...args], { encoding: 'utf8', cwd: process.cwd() })

test('a process does not end before a call that waits has ended', async () => {
  const store = `file:${folder()}`
  const ended = run(
    `require('onlyonce').Engine.open(process.argv[1]).then((engine) => {
       engine.run('k', () => new Promise((resolve) => setTimeout(resolve, 300, 'stored')))
     })`,
    store,
  )

  assert.equal(ended.status, 0, ended.stderr)
  const engine = await Engine.open(store)
  assert.deepEqual(await engine.run('k', () => 'again'), { value: 'stored', replayed: true })
  await engine.close()
})

test('process.exit() says what it lost', () => {
  const ended = run(
    `require('onlyonce').Engine.open('memory:').then((engine) => {
       engine.run('k', () => new Promise(() => {}))
       setTimeout(() => process.exit(3), 100)
     })`,
  )

  assert.equal(ended.status, 3, ended.stderr)
  assert.match(ended.stderr, /1 calls were still running/)
})

test('worker threads have engines of their own on one store', async () => {
  const store = `sqlite:${join(folder(), 'records.db')}`
  const code = `
    const { parentPort, workerData } = require('node:worker_threads')
    const { Engine } = require('onlyonce')
    Engine.open(workerData).then(async (engine) => {
      const { value } = await engine.run('k', async () => {
        await new Promise((resolve) => setTimeout(resolve, 100))
        return Math.random()
      })
      await engine.close()
      parentPort.postMessage(value)
    })`
  const values = await Promise.all(
    Array.from({ length: 4 }, () => {
      const worker = new Worker(code, { eval: true, workerData: store })
      return new Promise((resolve, reject) => worker.on('message', resolve).on('error', reject))
    }),
  )

  assert.equal(new Set(values).size, 1, String(values))
})
