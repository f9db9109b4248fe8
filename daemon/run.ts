import { constants } from 'node:os'
import { setFlagsFromString } from 'node:v8'
import { onOutputFailure } from '../src/core/terminal.ts'
import { systemClock } from '../src/core/time.ts'
import { configFromEnv, isDebug, serviceManagerOf } from './config.ts'
import { forgetFirstPassword } from './first-password.ts'
import { processLog } from './log.ts'
import { settingsSource } from './secrets/source.ts'
import { type Service, serve } from './serve.ts'
import { type ServiceManager, serviceManager } from './service-manager.ts'
import { startMessage } from './start-message.ts'

type Flags = {
  host?: string | undefined
  port?: number | undefined
  'data-dir'?: string | undefined
  json: boolean
}

type Begun = { service?: Service; manager?: ServiceManager }

/**
 * `svc serve` as a process: prints its address, reloads on SIGHUP, drains on SIGTERM and SIGINT, and exits. Never returns:
 * a command that returns ends the process.
 */
export async function runService(flags: Flags): Promise<never> {
  // Output may fail (a full disk, a closed reader): that does not end the service.
  onOutputFailure(() => {})
  const begun: Begun = {}
  endOnSignal(begun)
  const source = settingsSource(flags)
  const config = await startable(() => configFromEnv(flags))
  const log = processLog(config)
  const service = await startable(() => serve(config, systemClock, { log, alone: true, source }))
  const manager = serviceManager(serviceManagerOf(), log)
  Object.assign(begun, { service, manager })
  // A small young generation is slow under load.
  setFlagsFromString('--semi-space-growth-factor=2')
  const { url, firstAdministrator: first } = service
  const { admin, dataDir, outside } = config
  const onTerminal = process.stderr.isTTY
  const text = startMessage({ url: outside.apiUrl ?? url, email: admin.email, dataDir, first }, onTerminal)
  process.stdout.write(
    flags.json ? `${JSON.stringify({ event: 'listening', url })}\n` : `listening on ${url}\n`,
  )
  process.stderr.write(text)
  if (first && onTerminal) forgetFirstPassword(dataDir)
  manager.ready(`listening on ${url}`)
  return new Promise(() => {})
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
  if (code === 'EADDRINUSE')
    return `${address}:${port} is in use. Choose another port: svc serve --port ${(port ?? 0) + 1}, or PORT=${(port ?? 0) + 1}`
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
function endOnSignal(begun: Begun): void {
  let ending = false
  const end = (signal: NodeJS.Signals): void => {
    if (ending || !begun.service) process.exit(128 + constants.signals[signal])
    ending = true
    setTimeout(() => process.exit(1), lastMs).unref()
    begun.manager?.stopping()
    begun.service.close().then(
      () => process.exit(0),
      () => process.exit(1),
    )
  }
  // Without a listener Node opens its debugger on a loopback port, which executes any code it receives.
  process.on('SIGUSR1', () => {})
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, end)
  // Closing a terminal sends it too, and has to end what runs there. A start reads everything anyway.
  const isOnTerminal = process.stderr.isTTY
  process.on('SIGHUP', (signal) => (isOnTerminal ? end(signal) : begun.service?.reload()))
}
