import type { Storage } from '../src/storage/open.ts'
import { setBackgroundTrace } from '../src/storage/trace.ts'
import type { Config } from './config.ts'
import type { Tracing, TracingParts } from './tracing/traces.ts'

/** Loads OpenTelemetry only where traces are configured. */
export async function openTracing(
  { tracing }: Pick<Config, 'tracing'>,
  { traits }: Pick<Storage, 'traits'>,
  parts: TracingParts,
): Promise<Tracing | undefined> {
  if (tracing === undefined) return undefined
  const { openSdk } = await import('./tracing/sdk.ts')
  const { background, ...made } = openSdk(tracing, traits.systemName, parts)
  setBackgroundTrace(background)
  const close = () => {
    setBackgroundTrace(undefined)
    return made.close()
  }
  return { ...made, close }
}
