import { createRequire } from 'node:module'
import { type DestinationStream, type Logger, pino } from 'pino'
import type PinoPretty from 'pino-pretty'
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
    ? (createRequire(import.meta.url)('pino-pretty') as typeof PinoPretty)({
        destination: stream.fd,
        colorize: color,
        sync: true,
        ignore: 'pid,hostname',
      })
    : pino.destination({ fd: stream.fd, sync: false, minLength: 12_288 })
  const log = logInto(out, level)
  if (!stream.isTTY) setInterval(() => log.flush(), 500).unref()
  return log
}

export const logInto = (out: DestinationStream, level: string): Logger =>
  pino({ level, redact, base: undefined, timestamp: () => `,"time":"${systemClock()}"` }, out)
