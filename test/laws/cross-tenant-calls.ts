import { type Endpoint, isMutation } from '../../src/core/endpoint.ts'
import type { Resource } from '../../src/core/schema.ts'
import { callOf, type Input, naming, type Records, toWire, unknownRecords, unread } from './calls.ts'
import { type Entry, idsOf } from './fields.ts'
import { isFilteredId } from './filtered-ids.ts'
import type { Stage, Stranger } from './fixture.ts'
import { about, changed, type Dump, dump } from './tables.ts'
import { type Answer, jsonOf, type Line } from './wire.ts'

/** A breach of tenant isolation. */
type Breach = { stranger: string; entry: string; call: string; what: string }

export type Findings = {
  breaches: Breach[]
  /** The entries called, by the name of the stranger. */
  called: Map<string, Set<string>>
  /** All places where an ID of the victim was used, as `devices.list query.siteId`. */
  named: Set<string>
  calls: number
  /** The last dump of the database. */
  stored?: Dump
}

/**
 * Every stranger calls every entry: first without IDs of the victim, when nothing of the victim may be
 * returned; then with the victim's IDs in each place for an ID, when the answer must equal that for an
 * unknown ID, and nothing may change. The calls without IDs come first because refusals are
 * audited, and strangers may read the IDs they used in their own log.
 */
export async function callAsStrangers(
  stage: Stage,
  entries: readonly Entry[],
  line: Line,
): Promise<Findings> {
  const found: Findings = { breaches: [], called: new Map(), named: new Set(), calls: 0 }
  for (const step of [callWithoutIds, callWithVictimIds]) {
    for (const stranger of stage.strangers) {
      const called = found.called.get(stranger.name) ?? new Set<string>()
      found.called.set(stranger.name, called)
      for (const { name, entry } of entries.filter((one) => concerns(stranger, one.entry))) {
        const attempt = new Attempt(stage, stranger, name, entry, line, found)
        await step(attempt)
        if (attempt.calls > 0) called.add(name)
        found.calls += attempt.calls
      }
    }
  }
  return found
}

/** Public entries do not depend on the caller, so one stranger is enough. */
export const concerns = (stranger: Stranger, entry: Endpoint): boolean =>
  entry.access.who !== 'public' || stranger.name === 'nobody'

async function callWithoutIds(it: Attempt): Promise<void> {
  const { entry, stranger } = it
  // A stranger who changes their own record breaches nothing, and would lose what later calls need.
  const theirs = ({ resource }: { resource: Resource }) => !stranger.foreign.includes(resource)
  if (isMutation(entry) && !it.ids.every((id) => id.optional || theirs(id))) return
  const plain = callOf(entry, stranger.own)
  const options = isMutation(entry) ? plain : callOf(entry, stranger.own, { all: true })
  const before = isMutation(entry) ? about(await it.rows(), stranger.hidden) : undefined
  for (const input of distinct([plain, options])) {
    const answer = await it.ask(input)
    it.check(input, answer.status >= 500 && `answered ${answer.status}`)
  }
  if (!before) return
  it.check(plain, changed(before, about(await it.rows({ anew: true }), stranger.hidden)).join('\n'))
}

async function callWithVictimIds(it: Attempt): Promise<void> {
  const { entry, stranger, stage } = it
  const ids = it.ids.filter(({ resource }) => stranger.foreign.includes(resource))
  if (ids.length === 0) return
  const before = await it.rows()
  const own = distinct([callOf(entry, stranger.own), callOf(entry, stranger.own, { all: true })])
  const nameable = {
    ...stranger.own,
    ...Object.fromEntries(stranger.foreign.map((it) => [it, stage.victim[it]])),
  }
  const everywhere = callOf(entry, nameable as Records, { all: true })
  for (const { part, path, resource } of ids) {
    const at = `${it.name} ${part}.${path.join('.')}`
    it.named.add(at)
    if (unread.includes(at) && (await landsAtHome(it, naming(own[0]!, part, path, stage.victim[resource]))))
      continue
    for (const base of distinct([...own, everywhere])) {
      const input = naming(base, part, path, stage.victim[resource])
      const answer = await it.ask(input)
      const sieved = isFilteredId({ part, path })
      const fine = refused(entry, answer) || (sieved && answer.status === 200)
      it.check(input, !fine && `answered ${answer.status}: ${answer.text.slice(0, 200)}`)
      if (base === everywhere) continue
      // The caller's own record changed, including its time.
      if (sieved && answer.status === 200) continue
      const absent = await it.ask(naming(base, part, path, unknownRecords()[resource]))
      const same = absent.status === answer.status && summaryOf(absent) === summaryOf(answer)
      it.check(
        input,
        !same && `tells that the record exists: ${summaryOf(answer)} but else ${summaryOf(absent)}`,
      )
    }
  }
  // In that case the caller's own records may have changed.
  const atHome = it.atHome || ids.every(isFilteredId)
  const victims = (rows: Dump) => (atHome ? about(rows, stranger.hidden) : rows)
  it.check(everywhere, changed(victims(before), victims(await it.rows({ anew: true }))).join('\n'))
}

/** Whether a call with an ignored ID affected only the caller's own organization. */
async function landsAtHome(it: Attempt, input: Input): Promise<boolean> {
  const answer = await it.ask(input)
  it.atHome ||= answer.status === 201 && jsonOf(answer).orgId === it.stranger.own.organization
  return it.atHome
}

/** A list may be empty; anything else must be refused, and a 400 must name the field. */
function refused(entry: Endpoint, { status }: Answer): boolean {
  return (!isMutation(entry) && status === 200) || [400, 401, 403, 404].includes(status)
}

const summaryOf = (answer: Answer): string =>
  `${answer.status} ${answer.text.startsWith('{') ? JSON.stringify(jsonOf(answer)) : answer.text}`

const distinct = (inputs: Input[]): Input[] => [
  ...new Map(inputs.map((input) => [JSON.stringify(input), input])).values(),
]

/** The calls of one stranger to one entry. */
class Attempt {
  readonly stage: Stage
  readonly stranger: Stranger
  readonly name: string
  readonly entry: Endpoint
  readonly #line: Line
  readonly #found: Findings
  readonly ids: ReturnType<typeof idsWithNeed>
  calls = 0
  /** Whether the call created something in the caller's own organization, which is allowed. */
  atHome = false

  constructor(stage: Stage, stranger: Stranger, name: string, entry: Endpoint, line: Line, found: Findings) {
    this.stage = stage
    this.stranger = stranger
    this.name = name
    this.entry = entry
    this.#line = line
    this.#found = found
    this.ids = idsWithNeed(entry)
  }

  get named(): Set<string> {
    return this.#found.named
  }

  async ask(input: Input): Promise<Answer> {
    this.calls += 1
    let answer = await this.#line.send(toWire(this.entry, input, await this.stranger.token()))
    if (answer.status === 401 && this.entry.access.who === 'user') {
      // An administrator among the strangers may have ended the session of another stranger.
      const last = await this.stranger.token()
      this.stranger.renew()
      const token = await this.stranger.token()
      if (token !== last) answer = await this.#line.send(toWire(this.entry, input, token))
    }
    // For example a sign-out.
    if (isMutation(this.entry) && answer.status < 300) this.stranger.renew()
    const leaked = this.stranger.hidden.filter((text) => answer.text.includes(text))
    this.check(input, leaked.length > 0 && `shows ${leaked.join(', ')}`)
    return answer
  }

  async rows({ anew = false } = {}): Promise<Dump> {
    if (anew || !this.#found.stored) this.#found.stored = await dump(this.stage.service.storage)
    return this.#found.stored
  }

  check(input: Input, what: string | false): void {
    if (!what) return
    const { params, query, body } = input
    const call = JSON.stringify({ params, query, body })
    this.#found.breaches.push({ stranger: this.stranger.name, entry: this.name, call, what })
  }
}

const idsWithNeed = (entry: Endpoint) =>
  idsOf(entry).map((id) => ({ ...id, optional: id.schema.safeParse(undefined).success }))
