import { once } from 'node:events'
import { fromHere, start } from './children.ts'
import type { Load, Order } from './load.ts'

export type Loader = (order: Order) => Promise<Load>

/** One process that makes the load, for the whole run. */
export function startLoader(): Loader {
  const child = start([fromHere('./load.ts')], { ipc: true })
  return async (order) => {
    const late = AbortSignal.timeout(order.milliseconds + 30_000)
    child.send(order)
    const [answer] = (await once(child, 'message', { signal: late })) as [{ load: Load } | { error: string }]
    if ('error' in answer) throw new Error(`${order.requests[0]?.path} at ${order.url}: ${answer.error}`)
    return answer.load
  }
}
