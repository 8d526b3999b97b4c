// The client in a real browser: Debian's Chromium, its IndexedDB, its tabs and its reloads.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { after, before, test } from 'node:test'
import { chromium } from 'playwright-core'

const { Engine } = createRequire(import.meta.url)('onlyonce')
const client = readFileSync(fileURLToPath(import.meta.resolve('onlyonce/client')))

const page = `<!doctype html><title>Shop</title>
<form action="/orders"><input name="cents" value="500"><button type="submit">Order</button></form>
<p id="said"></p><script type="module" src="/page.mjs"></script>`
const script = `import { Client, protectForm } from '/client.mjs'
const said = document.querySelector('#said')
const client = new Client({ attempts: 2, backoff: [10, 10] })
protectForm(document.querySelector('form'), {
  client,
  intention: 'cart 7',
  onAnswer: async (response) => {
    const text = await response.text()
    said.textContent += text + ';'
  },
  onError: (error) => { said.textContent += error.name + ';' },
})
globalThis.client = client
document.body.dataset.ready = 'yes'`

const files = {
  '/': ['text/html', page],
  '/page.mjs': ['text/javascript', script],
  '/client.mjs': ['text/javascript', client],
  '/login': ['text/html', '<h1>Sign in</h1>'],
}

const flags = ['disable-gpu', 'disable-quic', 'no-first-run', 'disable-background-networking']
flags.push('disable-component-update', 'disable-sync')
let browser
before(async () => {
  const args = flags.map((flag) => `--${flag}`)
  browser = await chromium.launch({ executablePath: '/usr/bin/chromium', chromiumSandbox: false, args })
})
after(() => browser?.close())

/** A shop behind the middleware, and a browser profile of its own. */
async function shopping(work) {
  const engine = await Engine.open('memory:')
  const shop = { runs: 0, asked: 0, keys: new Set(), loses: false, redirects: false, hold: undefined }
  const listener = engine.listener((request, response) => {
    shop.runs += 1
    request.resume().on('end', async () => {
      await shop.hold
      response.end(`order ${shop.runs}`)
    })
  })
  const server = createServer((request, response) => {
    const file = files[request.url]
    if (request.method === 'GET' && file) {
      response.writeHead(200, { 'content-type': file[0] }).end(file[1])
      return
    }
    if (request.method !== 'POST') {
      response.writeHead(404).end()
      return
    }
    shop.asked += 1
    shop.keys.add(request.headers['idempotency-key'])
    if (shop.redirects) {
      response.writeHead(302, { location: '/login' }).end()
      return
    }
    if (shop.loses) {
      // The order is made, and its answer never arrives.
      response.end = () => request.socket.destroy()
      response.write = () => true
    }
    listener(request, response)
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const context = await browser.newContext()
  const open = async () => {
    const tab = await context.newPage()
    await tab.goto(`http://127.0.0.1:${server.address().port}/`)
    await tab.waitForSelector('body[data-ready]')
    return tab
  }
  try {
    await work(shop, open)
  } finally {
    await context.close()
    server.closeAllConnections()
    server.close()
    await engine.close()
  }
}

const said = (tab, text) => tab.waitForFunction((it) => document.querySelector('#said').textContent === it, text)
const order = (tab) => tab.evaluate(() => document.querySelector('form').requestSubmit())

test('two submissions at once are one order', () =>
  shopping(async (shop, open) => {
    const tab = await open()

    await tab.evaluate(() => {
      const form = document.querySelector('form')
      form.requestSubmit()
      form.requestSubmit()
    })
    await said(tab, 'order 1;order 1;')

    assert.deepEqual([shop.runs, shop.keys.size], [1, 1])
  }))

test('a page that is loaded again after a lost answer repeats with the key it had', () =>
  shopping(async (shop, open) => {
    const tab = await open()
    shop.loses = true
    await order(tab)
    await said(tab, 'UnansweredError;')
    shop.loses = false

    await tab.reload()
    await tab.waitForSelector('body[data-ready]')
    await order(tab)
    await said(tab, 'order 1;')

    assert.deepEqual([shop.runs, shop.keys.size], [1, 1])
    await order(tab)
    await said(tab, 'order 1;order 2;')
    assert.equal(shop.keys.size, 2)
  }))

test('two tabs with one intention have one key', () =>
  shopping(async (shop, open) => {
    const tabs = [await open(), await open()]
    // A browser has six connections to a server: three carts in two tabs.
    const send = async (round) => {
      const ask = async (cart) => (await client.send(cart, '/orders', { body: JSON.stringify(cart) })).text()
      return (await Promise.all([1, 2, 3].map((cart) => ask(`${round} ${cart}`)))).length
    }

    for (let round = 1; round <= 10; round += 1) {
      let release
      shop.hold = new Promise((resolve) => {
        release = resolve
      })
      const sent = tabs.map((tab) => tab.evaluate(send, round))
      while (shop.asked < 6 * round) await new Promise((resolve) => setTimeout(resolve, 5))
      release()
      assert.deepEqual(await Promise.all(sent), [3, 3])
    }

    assert.deepEqual([shop.runs, shop.keys.size], [30, 30])
  }))

test('a redirect to a login page is not taken for an order', () =>
  shopping(async (shop, open) => {
    const tab = await open()
    shop.redirects = true
    await order(tab)
    await said(tab, 'UnansweredError;')
    shop.redirects = false
    assert.equal(shop.runs, 0)

    await order(tab)
    await said(tab, 'UnansweredError;order 1;')
    assert.deepEqual([shop.runs, shop.keys.size], [1, 1])
  }))

test('a button that does not say its type waits for the answer too', () =>
  shopping(async (shop, open) => {
    const tab = await open()
    await tab.evaluate(() => document.querySelector('button').removeAttribute('type'))
    let release
    shop.hold = new Promise((resolve) => {
      release = resolve
    })

    await order(tab)
    const whileSent = await tab.isDisabled('button')
    release()
    await said(tab, 'order 1;')

    assert.deepEqual([whileSent, await tab.isDisabled('button')], [true, false])
  }))
