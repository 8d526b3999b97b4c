// A route handler of Next, built and served by Next itself.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const HERE = dirname(fileURLToPath(import.meta.url))
const SHOP = join(HERE, 'next-shop')

const ROUTE = `
import { Engine } from 'onlyonce'
import { cookies } from 'next/headers'

let runs = 0
async function order(request, { params }) {
  runs += 1
  const { cart } = await params
  return Response.json({
    run: runs,
    cart,
    text: await request.text(),
    path: request.nextUrl.pathname,
    asked: request.nextUrl.searchParams.get('asked'),
    visit: request.cookies.get('visit')?.value,
    same: (await cookies()).get('visit')?.value,
    attempt: request.onlyonce?.attempt,
  })
}

let handler
export async function POST(request, context) {
  handler ??= Engine.open('memory:').then((engine) => engine.fetch(order))
  return (await handler)(request, context)
}
`

process.env.NEXT_TELEMETRY_DISABLED = '1'

test('a route handler of Next answers each key once, and has the request that Next gives it', async () => {
  rmSync(SHOP, { recursive: true, force: true })
  mkdirSync(join(SHOP, 'app/carts/[cart]'), { recursive: true })
  writeFileSync(join(SHOP, 'package.json'), '{ "private": true }')
  const config = `{ serverExternalPackages: ['onlyonce'], turbopack: { root: ${JSON.stringify(HERE)} } }`
  writeFileSync(join(SHOP, 'next.config.js'), `module.exports = ${config}`)
  writeFileSync(join(SHOP, 'app/carts/[cart]/route.js'), ROUTE)
  const require = createRequire(import.meta.url)
  execFileSync(process.execPath, [require.resolve('next/dist/bin/next'), 'build'], { cwd: SHOP, stdio: 'pipe' })

  const next = require('next')({ dev: false, dir: SHOP })
  await next.prepare()
  const server = createServer(next.getRequestHandler()).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const asked = (body) =>
    fetch(`http://127.0.0.1:${server.address().port}/carts/7?asked=yes`, {
      method: 'POST',
      headers: { 'idempotency-key': '7c9e6679-7425-40de-944b-e07fc1f90ae7', cookie: 'visit=3' },
      body,
    })
  const first = await asked('tea')
  const again = await asked('tea')
  const other = await asked('coffee')
  server.closeAllConnections()
  server.close()
  await next.close()

  const expected = { run: 1, cart: '7', text: 'tea', path: '/carts/7', asked: 'yes', visit: '3', same: '3', attempt: 1 }
  assert.deepEqual(await first.json(), expected)
  assert.deepEqual(await again.json(), expected)
  assert.equal(again.headers.get('idempotent-replayed'), 'true')
  assert.equal(other.status, 422)
})
