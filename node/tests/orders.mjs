// Places orders over a network that breaks answers, and repeats each until it has an answer. Says what was answered.
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client, FileKeys, UnansweredError } from 'onlyonce/client'

const [url, count] = process.argv.slice(2)
// A file that is there before the first order: the first orders all wait for it to be read.
const path = join(mkdtempSync(join(tmpdir(), 'onlyonce-orders-')), 'keys.json')
writeFileSync(path, '{}')
// Shorter than the network's delays.
const client = new Client({ keys: new FileKeys(path), timeout: 1000, attempts: 2, backoff: [10, 50] })

async function place(order) {
  for (;;) {
    try {
      const response = await client.send(order, url, { body: order })
      return await response.text()
    } catch (error) {
      if (!(error instanceof UnansweredError)) throw error
    }
  }
}

const orders = Array.from({ length: Number(count) }, (_, number) => `order-${number}`)
for (const answer of await Promise.all(orders.map(place))) {
  const [order, number, filler] = answer.split(' ')
  if (filler.length !== 32 * 1024) throw new Error('an answer that broke off was taken for a whole one')
  console.log(order, number)
}
if (readFileSync(path, 'utf8') !== '{}') throw new Error('a key was kept after its answer')
