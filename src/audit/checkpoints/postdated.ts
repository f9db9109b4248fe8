import { addSeconds, clockSkew, type Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import { maxAheadSeconds } from '../retention/rules.ts'
import type { Checkpoint } from './checkpoint.ts'

export type Postdated = { kind: 'postdated'; message: string; seq: number }

/** Whether a process of the service can have written this time: clocks differ by less than `clockSkew`. */
export const isPlausibleTime = (time: string, now: Instant, ahead = 0): boolean =>
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(time) && time <= addSeconds(now, ahead + clockSkew)

/**
 * Finds a time in the future among the records of a chain. An attacker who wrote it would keep the chain from
 * ever being verified, pruned or signed anew; a wrong clock of the service has to be reported as well.
 */
export async function findPostdated(
  db: Db,
  chain: string,
  { signed, checkedAt }: { signed: readonly Checkpoint[]; checkedAt: string | undefined },
  now: Instant,
): Promise<Postdated | undefined> {
  const retention = await db
    .selectFrom('audit_retention')
    .select(['last_cleanup_at', 'held_at', 'error_at', 'retry_at', 'leased_until'])
    .where('chain', '=', chain)
    .executeTakeFirst()
  const anchor = await db
    .selectFrom('audit_anchors')
    .select('created_at')
    .where('chain', '=', chain)
    .executeTakeFirst()
  const reading = await db
    .selectFrom('audit_readings')
    .select((eb) => eb.fn.max('until').as('until'))
    .where('chain', '=', chain)
    .executeTakeFirst()
  const checkpoint = await db
    .selectFrom('audit_checkpoints')
    .select((eb) => eb.fn.max('created_at').as('made'))
    .where('chain', '=', chain)
    .executeTakeFirst()
  const entry = await db
    .selectFrom('audit_logs')
    .select(['seq', 'timestamp'])
    .where('chain', '=', chain)
    .orderBy('timestamp', 'desc')
    .limit(1)
    .executeTakeFirst()

  const times: [what: string, time: string | null | undefined, ahead?: number, seq?: number][] = [
    ['The last verdict on the chain', checkedAt],
    ...signed.map(({ kind, time }): [string, string] => [`The ${kind} of the chain`, time]),
    ['The checkpoint of the chain', checkpoint?.made],
    ['The anchor of the chain', anchor?.created_at],
    ['The last run of retention', retention?.last_cleanup_at],
    ['The hold of the chain', retention?.held_at],
    ['The failure of retention', retention?.error_at],
    ['The next run of retention', retention?.retry_at, maxAheadSeconds.retry],
    ['The lease of retention', retention?.leased_until, maxAheadSeconds.lease],
    ['Somebody reading the chain', reading?.until, maxAheadSeconds.reading],
    [`Entry ${entry?.seq}`, entry?.timestamp, 0, entry?.seq],
  ]
  for (const [what, time, ahead, seq = 0] of times) {
    if (time === null || time === undefined || isPlausibleTime(time, now, ahead)) continue
    return {
      kind: 'postdated',
      message: `${what} is dated ${time.slice(0, 40)}, which has not come yet`,
      seq,
    }
  }
  return undefined
}
