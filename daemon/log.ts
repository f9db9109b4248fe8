import { createRequire } from 'node:module'
import { type DestinationStream, type Logger, pino } from 'pino'
import type PinoPretty from 'pino-pretty'
import { escapeControlsIn } from '../src/core/terminal.ts'
import { systemClock } from '../src/core/time.ts'

/** Fields that never reach a log line, wherever they stand. */
const secretFields = [
  'password',
  'authorization',
  'cookie',
  'accessToken',
  'refreshToken',
  'tempToken',
  'key',
  'secret',
  'code',
]
const redact = {
  paths: ['*["set-cookie"]', ...secretFields.flatMap((field) => [field, `*.${field}`, `*.*.${field}`])],
  censor: '[redacted]',
}

/** Lines for people on a terminal, JSON elsewhere. */
export function logTo(
  stream: NodeJS.WriteStream & { fd: 1 | 2 },
  { level, color }: { level: string; color: boolean },
): Logger {
  const out: DestinationStream = stream.isTTY
    ? prettyTo(stream.fd, color)
    : pino.destination({ fd: stream.fd, sync: false, minLength: 12_288 })
  const log = logInto(out, level)
  if (!stream.isTTY) setInterval(() => log.flush(), 500).unref()
  return log
}

/** Its colors are the only sequences on the terminal: what a record says was made visible before. */
export function prettyTo(destination: number | NodeJS.WritableStream, colorize: boolean): DestinationStream {
  const pretty = (createRequire(import.meta.url)('pino-pretty') as typeof PinoPretty)({
    destination,
    colorize,
    sync: true,
    ignore: 'pid,hostname',
  })
  return { write: (line) => void pretty.write(`${JSON.stringify(escapeControlsIn(JSON.parse(line)))}\n`) }
}

/** `code` is the name of a secret elsewhere; that of an error says what is wrong (SQLSTATE, errno). */
function errorSaid(error: Error): Record<string, unknown> {
  const { code, ...said } = pino.stdSerializers.err(error) as unknown as Record<string, unknown>
  return typeof code === 'string' && /^[A-Z0-9_]{2,64}$/.test(code) ? { ...said, errorCode: code } : said
}

export const logInto = (out: DestinationStream, level: string): Logger =>
  pino(
    {
      level,
      redact,
      serializers: { err: errorSaid },
      base: undefined,
      timestamp: () => `,"time":"${systemClock()}"`,
    },
    out,
  )
