import { execFile } from 'node:child_process'
import type { Logger } from 'pino'

/*
 * sd_notify(3): tells systemd that the service listens, that it is not stuck, and that it ends. systemd listens on a datagram
 * socket of the Unix domain, which Node does not have: systemd-notify, a part of systemd, sends the message.
 */

type Env = Readonly<Record<string, string | undefined>>

export type ServiceManager = {
  /** The service listens: whoever waits for it goes on. */
  ready(status: string): void
  /** No message is overdue from now on. */
  stopping(): void
}

/** systemd wants one in the time that it gives; a message that is late under load is not the end of the service. */
const messagesPerTimeout = 3
/** Of one message: systemd-notify waits until systemd has read it. */
const timeoutMs = 10_000

const ready = 'READY=1'

/** undefined where no systemd waits for messages. `watchdogMs`: how long it waits for one, if it does. */
export type ServiceManagerSettings = { watchdogMs: number | undefined } | undefined

/** NOTIFY_SOCKET and the variables of the watchdog, which systemd sets. */
export function readServiceManager(env: Env): ServiceManagerSettings {
  const { NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID } = env
  if (!NOTIFY_SOCKET) return undefined
  const isWatched = WATCHDOG_PID === undefined || Number(WATCHDOG_PID) === process.pid
  const ms = Number(WATCHDOG_USEC) / 1000
  return { watchdogMs: isWatched && ms > 0 && Number.isFinite(ms) ? ms : undefined }
}

export function serviceManager(settings: ServiceManagerSettings, log: Logger): ServiceManager {
  if (settings === undefined) return { ready: () => {}, stopping: () => {} }
  const { watchdogMs } = settings
  let isFailing = false
  let isReadyKnown = false
  const tell = (...messages: string[]): void => {
    // It finds the socket in the environment of this process.
    execFile('systemd-notify', messages, { timeout: timeoutMs }, (error) => {
      // Each message of the watchdog would fail alike.
      if (error && !isFailing) log.warn({ reason: error.message }, 'systemd-notify failed')
      isFailing = error !== null
      if (messages.includes(ready)) isReadyKnown ||= error === null
    })
  }
  let watchdog: NodeJS.Timeout | undefined
  return {
    ready(status) {
      tell(ready, `STATUS=${status}`)
      // A timer of the event loop: a loop that is stuck sends nothing. The database is not asked: a restart brings none back.
      if (watchdogMs !== undefined)
        watchdog = setInterval(() => {
          // Where the first message was lost, systemd would wait for ever.
          tell(...(isReadyKnown ? [] : [ready]), 'WATCHDOG=1')
        }, watchdogMs / messagesPerTimeout).unref()
    },
    stopping() {
      clearInterval(watchdog)
      tell('STOPPING=1')
    },
  }
}
