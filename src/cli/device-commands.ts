import { setTimeout as sleep } from 'node:timers/promises'
import { deviceCommands } from '../agents/commands/contract.ts'
import type { RawInput } from '../core/client.ts'
import type { ReplyOf } from '../core/endpoint.ts'
import type { CommandContext } from './base.ts'
import type { CommandView } from './command-view.ts'
import { durationFlags } from './duration-flags.ts'
import { CliError, exitCodes, SilentExit, usageError } from './exit-codes.ts'
import { booleanFlag, choiceFlag, type FlagSet, textFlag } from './flags.ts'
import { readJson } from './input.ts'
import { printRecord, toJson } from './print.ts'
import { withSpinner } from './progress.ts'
import { type Style, styleFor } from './style.ts'
import { escapeToOneLine } from './table.ts'

type CommandReply = ReplyOf<typeof deviceCommands.show>

const minutes = durationFlags(
  'durationMinutes',
  'For set_log_level: duration, such as 30m; by default an hour',
)

/** The payload of a command, as flags or JSON: the service validates it by type. */
export const payloadFlags: NonNullable<CommandView['customFlags']> = {
  fields: ['payload'],
  flags: {
    payload: textFlag('Payload of the command, as JSON: -, @file or the JSON itself', 'JSON'),
    what: textFlag('For collect: inventory, metrics, logs, separated by commas', 'WHAT', ['payload']),
    level: choiceFlag('For set_log_level: lowest level of the log entries that the agent sends', [
      'debug',
      'info',
      'warn',
    ]),
    ...minutes.flags,
    enabled: choiceFlag('For set_auto_update: whether the agent may update itself', ['on', 'off']),
  },
  async values(flags, args) {
    const { payload, what, level, enabled } = flags as Record<string, string | undefined>
    const said = {
      ...(what !== undefined && { what: what.split(',').map((one) => one.trim()) }),
      ...(level !== undefined && { level }),
      ...(await minutes.values(flags, args)),
      ...(enabled !== undefined && { enabled: enabled === 'on' }),
    }
    if (payload === undefined) return Object.keys(said).length > 0 ? { payload: said } : {}
    if (Object.keys(said).length > 0)
      throw usageError('--payload replaces the other flags: use it without them')
    return { payload: await readJson(payload, '--payload') }
  },
}

export const waitFlags: FlagSet = {
  wait: booleanFlag({
    description: 'Wait for the result and show it; two minutes, or --timeout',
    exclusive: ['dry-run'],
  }),
}

const defaultWaitMs = 120_000

/** Sends a command and waits for its result; exits with 1 when it failed, 124 after the time limit. */
export async function sendAndWait(
  { client, output, settings }: CommandContext,
  input: RawInput,
): Promise<void> {
  const { id: deviceId } = input.params as { id: string }
  const { id } = (await client.request(deviceCommands.create, input)) as { id: string }
  const { value, from } = settings.timeout
  const until = performance.now() + (from === 'default' ? defaultWaitMs : value)
  const show = () => client.call(deviceCommands.show, { params: { id: deviceId, commandId: id } })
  const came = await withSpinner('Waiting for the agent', waitUntilEnded(show, until))
  if (came === undefined) {
    throw new CliError('The agent has not answered yet', {
      exit: exitCodes.timeout,
      code: 'device_timeout',
      hint: `the command stays pending: svc devices result ${deviceId} ${id}`,
    })
  }
  const style = styleFor(process.stdout)
  await printRecord(output, came, deviceCommands.show.reply, () => formatOutcome(came, style))
  if (came.status === 'failed') throw new SilentExit(exitCodes.failure)
}

/** undefined after the time limit. */
async function waitUntilEnded(
  show: () => Promise<CommandReply>,
  until: number,
): Promise<CommandReply | undefined> {
  for (let pause = 200; ; pause = Math.min(pause * 1.5, 2000)) {
    const came = await show()
    if (came.status === 'completed' || came.status === 'failed') return came
    if (performance.now() + pause > until) return undefined
    await sleep(pause)
  }
}

const lines = (text: string): string => text.trimEnd().split('\n').map(escapeToOneLine).join('\n')

/** The output of the command, and its result in the last line. */
function formatOutcome({ type, status, result, sentAt, createdAt }: CommandReply, style: Style): string {
  const wrote = [result?.stdout, result?.stderr].filter((text) => text)
  const data = result?.result ?? null
  const parts = [...wrote.map((text) => lines(text!)), ...(data === null ? [] : [toJson(data, 2)])]
  if (result?.dropped) parts.push(style.warning(droppedText(result.dropped)))
  return `${[...parts, verdict()].join('\n')}\n`

  function verdict(): string {
    if (status === 'completed') return style.good(`${escapeToOneLine(type)} completed${details()}`)
    if (status === 'failed') return style.bad(`${escapeToOneLine(type)} failed${details()}`)
    const since =
      status === 'sent' ? `was sent at ${sentAt}` : `has been waiting for the agent since ${createdAt}`
    return style.warning(`${escapeToOneLine(type)} ${since}`)
  }

  function details(): string {
    const { exitCode, durationMs, error } = result ?? {}
    const outcome = [
      ...(durationMs == null ? [] : [`in ${Math.round(durationMs)} ms`]),
      ...(exitCode == null ? [] : [`with exit code ${exitCode}`]),
    ].join(' ')
    return `${outcome && ` ${outcome}`}${error ? `: ${escapeToOneLine(error)}` : ''}`
  }
}

const droppedText = ({ bytes, at }: { bytes: number; at: string }): string =>
  `its output of ${bytes} bytes was deleted at ${at}, to make room for later commands`

/** For `svc devices result`. */
export const describeOutcome = async (reply: Record<string, unknown>): Promise<string> =>
  formatOutcome(reply as CommandReply, styleFor(process.stdout))
