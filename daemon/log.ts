import { type DestinationStream, type Logger, pino } from 'pino'
import pretty from 'pino-pretty'

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
  paths: secretFields.flatMap((field) => [field, `*.${field}`, `*.*.${field}`, `*["set-cookie"]`]),
  censor: '[redacted]',
}

/** Lines for people on a terminal, JSON elsewhere. */
export function logTo(
  stream: NodeJS.WriteStream & { fd: 1 | 2 },
  { level, color }: { level: string; color: boolean },
): Logger {
  const options = { level, redact, base: undefined, timestamp: pino.stdTimeFunctions.isoTime }
  const out: DestinationStream = stream.isTTY
    ? pretty({ destination: stream.fd, colorize: color, sync: true, ignore: 'pid,hostname' })
    : pino.destination({ fd: stream.fd, sync: false, minLength: 4096 })
  const log = pino(options, out)
  if (!stream.isTTY) setInterval(() => log.flush(), 500).unref()
  return log
}
