import { constants } from 'node:os'
import { setFlagsFromString } from 'node:v8'
import { systemClock } from '../src/core/time.ts'
import { configFromEnv, isDebug, programName } from './config.ts'
import { type Service, serve } from './serve.ts'

type Flags = {
  host?: string | undefined
  port?: number | undefined
  'data-dir'?: string | undefined
  json: boolean
}

/**
 * `svc serve` as a process: prints its address, drains on SIGTERM, SIGINT and SIGHUP, and exits. Never returns:
 * a command that returns ends the process.
 */
export async function runService(flags: Flags): Promise<never> {
  // Output may fail (a full disk, a closed reader): that does not end the service.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
  const begun: { service?: Service } = {}
  endOnSignal(begun)
  const config = await startable(() => configFromEnv(flags))
  const service = await startable(() => serve(config, systemClock, { alone: true }))
  begun.service = service
  // A small young generation is slow under load.
  setFlagsFromString('--semi-space-growth-factor=2')
  const { url, firstPassword } = service
  process.stdout.write(
    flags.json ? `${JSON.stringify({ event: 'listening', url })}\n` : `listening on ${url}\n`,
  )
  process.stderr.write(welcome(url, config.admin.email, config.dataDir, firstPassword))
  return new Promise(() => {})
}

function welcome(url: string, email: string, dataDir: string, password: string | undefined): string {
  const at = url === 'http://127.0.0.1:3000' ? '' : ` --url ${url}`
  const signIn = `  ${programName()} login --email ${email}${at}\n`
  if (password === undefined) return `\nSign in from another terminal:\n\n${signIn}\nData: ${dataDir}\n\n`
  return (
    '\nA system administrator was created. The password is displayed only once:\n\n' +
    `  e-mail    ${email}\n  password  ${password}\n\nSign in from another terminal:\n\n${signIn}\nData: ${dataDir}\n\n`
  )
}

/** A start-up failure is one line with the remedy, and exit 1; SVC_DEBUG prints its stack. */
async function startable<T>(step: () => T | Promise<T>): Promise<T> {
  try {
    return await step()
  } catch (error) {
    if (isDebug()) throw error
    const text = listenFailure(error as ListenError) ?? (error as Error).message
    process.stderr.write(`svc serve: ${text}\n`)
    process.exit(1)
  }
}

type ListenError = NodeJS.ErrnoException & { port?: number; address?: string; hostname?: string }

function listenFailure({
  syscall,
  code,
  port,
  address,
  hostname = address,
}: ListenError): string | undefined {
  if (syscall !== 'listen' && syscall !== 'getaddrinfo') return undefined
  if (code === 'EADDRINUSE') return `${address}:${port} is in use. Choose another port: svc serve --port 0`
  if (code === 'EACCES')
    return `This user may not listen on port ${port}. Choose one from 1024: svc serve --port 3000`
  return `${hostname} is no address of this machine (${code}). Set HOST or --host to one, such as 127.0.0.1, or to 0.0.0.0 for all.`
}

/** Whoever asks for the end mostly kills the process after ten seconds. */
const lastMs = 9800

/**
 * Before the service runs a signal ends the process immediately, by an explicit handler: as the first process of a container
 * it would ignore a signal without a handler, and be killed later.
 */
function endOnSignal(begun: { service?: Service }): void {
  let ending = false
  const end = (signal: NodeJS.Signals): void => {
    if (ending || !begun.service) process.exit(128 + constants.signals[signal])
    ending = true
    setTimeout(() => process.exit(1), lastMs).unref()
    begun.service.close().then(
      () => process.exit(0),
      () => process.exit(1),
    )
  }
  // Without a listener Node opens its debugger on a loopback port, which executes any code it receives.
  process.on('SIGUSR1', () => {})
  // Closing a terminal sends SIGHUP.
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, end)
}
