import { setBackgroundTrace } from '../src/storage/trace.ts'
import type { Config } from './config.ts'
import type { Tracing, TracingParts } from './tracing/traces.ts'

/** Loads OpenTelemetry only where traces are configured. */
export async function openTracing(
  { tracing, databaseUrl }: Pick<Config, 'tracing' | 'databaseUrl'>,
  parts: TracingParts,
): Promise<Tracing | undefined> {
  if (tracing === undefined) return undefined
  const database = databaseUrl === undefined ? 'sqlite' : 'postgresql'
  const { background, ...made } = (await import('./tracing/sdk.ts')).openSdk(tracing, database, parts)
  setBackgroundTrace(background)
  const close = () => {
    setBackgroundTrace(undefined)
    return made.close()
  }
  return { ...made, close }
}
