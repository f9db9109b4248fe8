import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { manifestCommands } from '../cli/manifest.ts'
import { Home } from '../cli/run.ts'
import { type Command, typed } from './command-lines.ts'
import { HostileService } from './hostile-service.ts'
import { runLines } from './run-lines.ts'

type Declared = {
  hidden?: boolean
  endpoints?: string[]
  args: Record<string, { multiple?: boolean }>
  flags: Record<string, { helpValue?: string }>
  examples: string[]
}
const shown = Object.entries(manifestCommands<Declared>()).filter(([, { hidden }]) => !hidden)

/** What is deleted is named by a body, which may name several. */
const byBody = ['groups:remove']

it('every command that deletes takes several names', () => {
  const single = shown
    .filter(([, { endpoints }]) => endpoints?.some((route) => route.startsWith('DELETE ')))
    .filter(([, { args }]) => Object.values(args).at(-1)?.multiple !== true)
  expect(single.map(([id]) => id)).toEqual(byBody)
})

const instants = /^(since|until|expires-at|expiring-within|contract-start|contract-end)$/
const durations = /^(timeout|gate|soak|interval|update-after|for|every)$/

describe('a flag that takes a time', () => {
  const flags = shown.flatMap(([id, command]) =>
    Object.entries(command.flags)
      .filter(([, { helpValue }]) => helpValue === 'TIME')
      .map(([flag]) => ({ id, flag, command })),
  )

  it('takes an instant, or a duration', () => {
    expect(flags.filter(({ flag }) => !instants.test(flag) && !durations.test(flag))).toEqual([])
  })

  const home = new Home()
  const service = new HostileService('likely')
  type Seen = { id: string; said: string; text: string }
  let seen: Seen[]

  beforeAll(async () => {
    const url = await service.start()
    const runs = flags
      .filter(({ flag }) => instants.test(flag))
      .flatMap(({ id, flag, command }) => {
        const line = without(flag, typed(id, command as unknown as Command))
        return ['30d', '12h', '2026-01-31', '2026-01-31T12:00:00Z', 'soon'].map((said) => {
          return { id: `${id} --${flag}`, said, argv: [...line, `--${flag}=${said}`], url }
        })
      })
    seen = (await runLines(home, runs, { signedInTo: url, longest: 100_000 })).seen
  })

  afterAll(async () => {
    await service.stop()
    home.remove()
  })

  it('that is an instant takes an age, a date or an instant, and says so of anything else', () => {
    const refused = seen.filter(({ text }) => /takes a time, not/.test(text))
    expect(new Set(refused.map(({ said }) => said))).toEqual(new Set(['soon']))
    expect(refused.map(({ id }) => id)).toEqual([...new Set(seen.map(({ id }) => id))])
    const unclear = seen.filter(({ text }) => /Nonexistent flag|Unexpected argument/.test(text))
    expect(unclear).toEqual([])
  })
})

/** A command line without a flag that its example has. */
function without(flag: string, line: readonly string[]): string[] {
  const at = line.indexOf(`--${flag}`)
  return at === -1 ? [...line] : [...line.slice(0, at), ...line.slice(at + 2)]
}
