import type { WebSocket } from 'ws'
import { parseJson } from '../../core/json.ts'
import { safeParse } from '../../core/schema.ts'
import { Command } from '../../live/wire/contract.ts'
import type { Agent } from '../agent.ts'
import { type CommandRunner, isDurable } from '../commands/runner.ts'
import type { IdentityHolder } from '../identity-holder.ts'
import { maxPauseMs, pauseMs } from '../retry.ts'
import type { LiveLogs } from './logs.ts'
import { answerQuery } from './queries.ts'

export type ListenerDependencies = {
  logs: LiveLogs
  /** Executes commands that are stored until they are done, on both sides. */
  perform: CommandRunner['perform']
}

/** The service pings every 30 s. */
const silenceMs = 75_000
/** A connection that lasted this long counts as successful. */
const goodMs = 10_000
const supersededCode = 4002

/**
 * Stays connected and answers queries. Nothing else waits for it: without a connection the agent reports as usual.
 * Stops with the signal.
 */
export async function keepListening(
  agent: Agent,
  identity: IdentityHolder,
  able: ListenerDependencies,
): Promise<void> {
  const { clock, dial, random, report, signal } = agent
  if (!dial) return
  for (let failures = 0; !signal.aborted; ) {
    const began = clock.now()
    const { agentId, deviceId, authToken } = identity.current()
    const onOpen = (): void => report({ event: 'listening', deviceId })
    const renewed = new AbortController()
    identity.onNewToken(() => renewed.abort(), AbortSignal.any([signal, renewed.signal]))
    const lasting = AbortSignal.any([signal, renewed.signal])
    const { code, message } = await oneConnection(() => dial(agentId, authToken), able, lasting, onOpen)
    if (signal.aborted) return
    if (renewed.signal.aborted) {
      failures = 0
      continue
    }
    renewed.abort()
    failures = clock.now() - began >= goodMs ? 1 : failures + 1
    // Another agent uses this identity: taking turns would help neither.
    const pause = code === supersededCode ? maxPauseMs * (1 - 0.3 * random()) : pauseMs(failures, random)
    if (failures === 1) {
      const retryInSeconds = Math.round(pause / 100) / 10
      report({
        event: 'failed',
        step: 'listening',
        code: String(code ?? 'unreachable'),
        message,
        failures,
        retryInSeconds,
      })
    }
    // An abort ends the pause, and the loop with it.
    await clock.sleep(pause, signal).catch(() => {})
  }
}

type End = { code?: number; message: string }

async function oneConnection(
  dial: () => Promise<WebSocket>,
  able: ListenerDependencies,
  signal: AbortSignal,
  onOpen: () => void,
): Promise<End> {
  let socket: WebSocket
  try {
    socket = await dial()
  } catch (error) {
    return { message: (error as Error).message }
  }
  const gone = new AbortController()
  return new Promise((resolve) => {
    const hangUp = (): void => socket.terminate()
    let watch = setTimeout(hangUp, silenceMs)
    let failure: string | undefined
    const end = (code?: number, reason?: Buffer): void => {
      clearTimeout(watch)
      signal.removeEventListener('abort', hangUp)
      // Results of pending queries are no longer needed.
      gone.abort()
      const said = reason?.toString() || failure || 'the connection was lost'
      resolve({ message: said, ...(code !== undefined && { code }) })
    }
    if (signal.aborted) hangUp()
    signal.addEventListener('abort', hangUp)
    socket.on('error', (error) => {
      failure = error.message
    })
    socket.on('close', end)
    socket.on('message', (data, isBinary) => {
      clearTimeout(watch)
      watch = setTimeout(hangUp, silenceMs)
      if (!isBinary) handleFrame(socket, String(data), able, gone.signal, onOpen)
    })
  })
}

function handleFrame(
  socket: WebSocket,
  text: string,
  able: ListenerDependencies,
  signal: AbortSignal,
  onOpen: () => void,
): void {
  const frame = parseJson(text) as { type?: unknown } | undefined
  if (frame?.type === 'connected') onOpen()
  if (frame?.type === 'ping') socket.send('{"type":"pong"}')
  const { success, data: command } = safeParse(Command, frame)
  if (!success) return
  const done = isDurable(command) ? able.perform(command) : answerQuery(command, able.logs, signal)
  done.then((result) => {
    if (signal.aborted) return
    socket.send(JSON.stringify({ type: 'command_result', commandId: command.id, ...result }))
  })
}
