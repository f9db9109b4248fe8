import { afterAll, beforeAll, describe, expect, it, type Mock, vi } from 'vitest'
import { SharedLimiter } from '../../daemon/shared-limiter.ts'
import { api } from '../../src/api.ts'

import type { LimitName } from '../../src/core/limits.ts'
import { systemClock } from '../../src/core/time.ts'
import { openMigrated } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { unsent } from '../identity/mail.ts'
import { buildWorld } from '../world.ts'
import { toWire } from './calls.ts'
import { mutating } from './fields.ts'
import { type ScenarioTools, scenarioOf, scenarioTools } from './scenarios.ts'
import { Line } from './wire.ts'

/** The limits of mails and messages to one person, besides general request limits. */
const bounds: readonly LimitName[] = ['INVITE_ADDRESS', 'LETTER', 'NOTICE', 'SMS_PHONE', 'PHONE']

/** Endpoints with another bound. */
const bounded: Readonly<Record<string, string>> = {
  'auth.resetPassword': 'a link, which is used up; LETTER bounds how many there are',
}

const changing = mutating(api).filter(({ entry }) => entry.access.who !== 'agent')

let service: TestService
let hand: ScenarioTools
let line: Line
let close: () => Promise<void>

beforeAll(async () => {
  const database = await openMigrated('sqlite')
  close = database.close
  service = await startService(async () => database, { outside: { mailer: unsent(false) } })
  hand = scenarioTools(service, await buildWorld(service), systemClock)
  line = new Line(service.url)
})
afterAll(async () => {
  await line.close()
  await service.close()
  await close()
})

/** All mails and phone codes queued so far. */
async function sent(): Promise<Set<string>> {
  const { read } = service.storage
  const mails = await read.selectFrom('mails').select('id').execute()
  const asked = await read.selectFrom('password_reset_requests').select('id').execute()
  const codes = await read.selectFrom('phone_codes').selectAll().execute()
  return new Set([
    ...mails.map(({ id }) => id),
    ...asked.map(({ id }) => id),
    ...codes.map((one) => JSON.stringify(one)),
  ])
}

const found: string[] = []

describe('an endpoint that sends a mail or a message', () => {
  it.each(changing)('is bounded by a specific limit: $name', async ({ name, entry }) => {
    const scenario = await scenarioOf(name, entry, hand)
    const before = await sent()
    const take = vi.spyOn(SharedLimiter.prototype, 'take') as unknown as Mock
    try {
      await line.send(toWire(entry, scenario.input, scenario.token))
      const sends = [...(await sent())].some((one) => !before.has(one))
      const names = take.mock.calls.map(([limit]) => limit as LimitName)
      if (!sends) return
      found.push(name)
      if (bounded[name] === undefined) expect(names.filter((one) => bounds.includes(one))).not.toEqual([])
    } finally {
      take.mockRestore()
    }
  })

  it('is found by this test', () => {
    const known = [
      'users.invite',
      'users.resendInvite',
      'users.resetMfa',
      'auth.newRecoveryCodes',
      'auth.verifyPhone',
    ]
    expect(found).toEqual(expect.arrayContaining([...known, ...Object.keys(bounded)]))
  })
})
