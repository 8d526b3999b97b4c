// The client on the demo's own form, in a real browser: `DEMO` is where the demo serves.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { after, before, test } from 'node:test'
import { chromium } from 'playwright-core'

const demo = process.env.DEMO
const form = `${demo}/forms/test-form`
const client = readFileSync(fileURLToPath(import.meta.resolve('onlyonce/client')))

const script = `import { Client, protectForm } from '/client.mjs'
const said = document.createElement('p')
said.id = 'said'
document.body.append(said)
protectForm(document.querySelector('form'), {
  client: new Client({ attempts: 2, backoff: [10, 10], pages: true }),
  encode: (data) => ({
    body: new URLSearchParams(data).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  }),
  onAnswer: async (response) => {
    const page = new DOMParser().parseFromString(await response.text(), 'text/html')
    said.textContent += page.querySelector('#record').textContent + ';'
  },
  onError: (error) => { said.textContent += error.name + ';' },
})
document.body.dataset.ready = 'yes'`

const flags = ['disable-gpu', 'disable-quic', 'no-first-run', 'disable-background-networking']
flags.push('disable-component-update', 'disable-sync')
let browser
before(async () => {
  const args = flags.map((flag) => `--${flag}`)
  browser = await chromium.launch({ executablePath: '/usr/bin/chromium', chromiumSandbox: false, args })
})
after(() => browser?.close())

const records = async () => (await (await fetch(`${demo}/api/forms/test-form/records`)).json()).count
const said = async (tab, pattern) => {
  const text = await tab.waitForFunction((it) => {
    const text = document.querySelector('#said').textContent
    return new RegExp(`^${it}$`).test(text) && text
  }, pattern)
  return text.jsonValue()
}

/** The demo's page with the client on its form, filled in. */
async function opened(tab) {
  await tab.goto(form)
  await tab.addScriptTag({ type: 'module', content: script })
  await tab.waitForSelector('body[data-ready]')
  await tab.fill('input[name=name]', 'Ada')
  await tab.fill('input[name=email]', 'ada@example.org')
}

test("the demo's form is one record for one intention, whatever becomes of its answers", async () => {
  const context = await browser.newContext()
  await context.route('**/client.mjs', (route) => route.fulfill({ contentType: 'text/javascript', body: client }))
  const keys = new Set()
  let loses = true
  await context.route('**/forms/test-form', async (route) => {
    if (route.request().method() !== 'POST') return route.continue()
    keys.add(await route.request().headerValue('idempotency-key'))
    if (!loses) return route.continue()
    // The record is made, and its answer never arrives.
    await route.fetch()
    await route.abort('connectionreset')
  })
  const tab = await context.newPage()
  await opened(tab)

  await tab.evaluate(() => {
    const form = document.querySelector('form')
    form.requestSubmit()
    form.requestSubmit()
    document.body.dataset.disabled = document.querySelector('button').disabled
  })
  await said(tab, 'UnansweredError;UnansweredError;')

  assert.equal(await tab.getAttribute('body', 'data-disabled'), 'true')
  assert.deepEqual([await records(), keys.size], [1, 1])

  loses = false
  await opened(tab)
  await tab.click('button')
  const first = await said(tab, '[^;]+;')

  assert.deepEqual([await records(), keys.size], [1, 1])

  await tab.click('button')
  const both = await said(tab, '[^;]+;[^;]+;')

  assert.deepEqual([await records(), keys.size], [2, 2])
  assert.notEqual(both, first + first)
  await context.close()
})
