import { parseJson } from '../../src/core/json.ts'
import { type Probe, probe } from './endpoint.ts'

/** Where the service listens according to the settings. @throws Error for an address that no URL can have */
export function ownUrl({ host, port }: { host: string; port: number }, path: string): URL {
  const name = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  const url = URL.parse(`http://${name.includes(':') ? `[${name}]` : name}:${port}${path}`)
  if (url) return url
  throw new Error(`HOST ${host} cannot be written as a URL`)
}

const isReady = ({ body }: Probe): boolean =>
  (parseJson(body) as { status?: unknown } | null | undefined)?.status === 'ready'

/** What the service says of its database; undefined when all is well. While it is being moved the service is ready, and says so. */
export function unreadyReason(seen: Probe): string | undefined {
  const { checks } = (parseJson(seen.body) ?? {}) as { checks?: { database?: unknown } }
  if (isReady(seen) && checks?.database === 'ok') return undefined
  return typeof checks?.database === 'string' ? checks.database : `HTTP ${seen.status}`
}

type Answer = { status: 'ready' | 'not_ready' | 'unreachable'; reason: string | null; url: string }

/** Asks the service that listens there. */
export async function askReadiness(place: { host: string; port: number }): Promise<Answer> {
  const url = ownUrl(place, '/health/ready')
  try {
    const seen = await probe(url)
    return {
      status: isReady(seen) ? 'ready' : 'not_ready',
      reason: unreadyReason(seen) ?? null,
      url: url.href,
    }
  } catch (error) {
    return { status: 'unreachable', reason: (error as Error).message, url: url.href }
  }
}
