// The types fit how the package is used.
import { createServer } from 'node:http'
import { Engine, execution, Mismatch, type Ran } from 'onlyonce'

export async function main(): Promise<number> {
  const engine = await Engine.open('memory:', { namespace: 'test' })
  const charge = engine.once(
    { key: (order: string) => order, name: 'charge', keepFor: 60 },
    async (_order: string, cents: number) => ({ cents }),
  )
  const { cents } = await charge('a', 5)
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
  try {
    await charge('a', 6)
  } catch (error) {
    if (error instanceof Mismatch) return error.retryAfter ?? 0
  }
  return ran.value
}
