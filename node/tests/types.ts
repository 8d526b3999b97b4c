// The types fit how the package is used.
import { createServer } from 'node:http'
import { Engine, execution, type LogLevel, Mismatch, onLog, type Ran } from 'onlyonce'

/** A framework's own class of requests. */
class Asked extends Request {
  readonly nextUrl = new URL(this.url)
}

export async function main(): Promise<number> {
  const engine = await Engine.open('memory:', { namespace: 'test' })
  const charge = engine.once(
    { key: (order: string) => order, name: 'charge', keepFor: 60 },
    async (_order: string, cents: number) => ({ cents }),
  )
  const { cents } = await charge('a', 5)
  const patient = engine.once(
    { key: (order: string) => order, name: 'patient', signal: (_order: string, signal?: AbortSignal) => signal },
    async (order: string, _signal?: AbortSignal) => order,
  )
  await patient('a', AbortSignal.timeout(1000))
  const stop: () => void = onLog((level: LogLevel, text: string) => console.log(level, text), 'warn')
  stop()
  const ran: Ran<number> = await engine.run('k', () => cents, { input: [1], signal: AbortSignal.timeout(1000) })
  const ride = engine.once({ key: (id: string) => id, name: 'ride' }, async (_id: string) => {
    const hold: string = await execution().step('reserve', () => 'hold-1', { input: 700 })
    return execution().step('charge', async () => ({ hold, lease: execution().lease }), { hold: true })
  })
  const { hold }: { hold: string } = await ride('ride-7')
  console.log(hold, (await engine.run('k', (context) => context.execution.downstream('mail'))).value)
  createServer(engine.listener((request, response) => response.end(String(request.onlyonce?.attempt))))
  const fetched = engine.fetch((request) => new Response(request.onlyonce?.label), { profile: 'stripe' })
  await fetched(new Request('http://shop/'))
  const routed: (request: Asked, context: { params: Promise<{ id: string }> }) => Promise<Response> = engine.fetch(
    async (request: Asked, { params }: { params: Promise<{ id: string }> }) =>
      new Response(request.nextUrl.pathname + (await params).id),
  )
  console.log(routed)
  try {
    await charge('a', 6)
  } catch (error) {
    if (error instanceof Mismatch) return error.retryAfter ?? 0
  }
  return ran.value
}
