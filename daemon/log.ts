import { createRequire } from 'node:module'
import { type DestinationStream, type Logger, pino } from 'pino'
import type PinoPretty from 'pino-pretty'
import { escapeControlsIn } from '../src/core/terminal.ts'
import { systemClock } from '../src/core/time.ts'
import { currentTrace } from '../src/storage/trace.ts'
import type { Config } from './config.ts'

/** Fields that never reach a log line, at any depth. */
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

/** The log of the process, on standard error: lines for people on a terminal, JSON elsewhere. */
export function processLog({ logLevel, color, tracing }: Config): Logger {
  const { fd, isTTY } = process.stderr
  const isTraced = tracing !== undefined
  return isTTY ? logInto(prettyTo(fd, color), logLevel, isTraced) : logToFile(fd, logLevel, isTraced)
}

/** Bytes of lines that wait for a full disk or a stuck reader; lines beyond are lost. */
const maxWaiting = 8 * 1024 * 1024

/** Logs to a file or pipe that may block: then lines are lost, and neither the service nor its shutdown waits. */
function logToFile(fd: number, level: string, isTraced: boolean): Logger {
  const out = pino.destination({ fd, sync: false, minLength: 12_288, maxLength: maxWaiting })
  const log = logInto(out, level, isTraced)
  let isFailing = false
  let lost = 0
  out.on('error', () => {
    isFailing = true
  })
  out.on('write', () => {
    isFailing = false
  })
  out.on('drop', () => {
    lost += 1
  })
  // At the end of the process, where pino would retry a failing write forever.
  const flushSync = out.flushSync.bind(out)
  out.flushSync = () => {
    if (!isFailing) flushSync()
  }
  setInterval(() => {
    log.flush()
    if (isFailing || lost === 0) return
    const lines = lost
    lost = 0
    log.warn({ lines }, 'the log could not be written for a while, and lines were lost')
  }, 500).unref()
  return log
}

/** Colors are the only control sequences on the terminal: the texts of a record are escaped before. */
export function prettyTo(destination: number | NodeJS.WritableStream, colorize: boolean): DestinationStream {
  const pretty = (createRequire(import.meta.url)('pino-pretty') as typeof PinoPretty)({
    destination,
    colorize,
    sync: true,
    ignore: 'pid,hostname',
    singleLine: true,
  })
  return { write: (line) => void pretty.write(`${JSON.stringify(escapeControlsIn(JSON.parse(line)))}\n`) }
}

/** `code` is redacted as a secret elsewhere; the code of an error (SQLSTATE, errno) is kept. */
function errorSaid(error: Error): Record<string, unknown> {
  const { code, ...said } = pino.stdSerializers.err(error) as unknown as Record<string, unknown>
  return typeof code === 'string' && /^[A-Z0-9_]{2,64}$/.test(code) ? { ...said, errorCode: code } : said
}

/** Lines about work that has a trace get its id. */
function traceOfLine(): { trace_id?: string } {
  const id = currentTrace()?.id
  return id === undefined ? {} : { trace_id: id }
}

export const logInto = (out: DestinationStream, level: string, isTraced = false): Logger =>
  pino(
    {
      level,
      ...(isTraced && { mixin: traceOfLine }),
      redact,
      serializers: { err: errorSaid },
      base: undefined,
      timestamp: () => `,"time":"${systemClock()}"`,
    },
    out,
  )
