import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent } from 'undici'
import { migrations } from '../../migrations/index.ts'
import { createCipher } from '../../src/core/cipher.ts'
import type { EventType } from '../../src/core/event-types.ts'
import { newId } from '../../src/core/new-id.ts'
import { addSeconds } from '../../src/core/time.ts'
import { joinPartner } from '../../src/identity/memberships.ts'
import { seedRoles } from '../../src/identity/seeds.ts'
import { insertSession } from '../../src/identity/sessions/store.ts'
import { createAccessTokens } from '../../src/identity/sessions/tokens.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { type Db, openStorage } from '../../src/storage/open.ts'
import { makeOrg } from '../../src/tenancy/organizations/rules.ts'
import { makePartner } from '../../src/tenancy/partners/rules.ts'
import { insertOrg, insertPartner } from '../../src/tenancy/store.ts'
import { makeWebhook } from '../../src/webhooks/rules.ts'
import { insertWebhook } from '../../src/webhooks/store.ts'
import { fromHere, start, temporaryFolder } from './children.ts'
import type { Server } from './servers.ts'
import type { Delays, Told } from './webhooks-receiver.ts'
import { addUser, noCaps, orgDefaults, type Place, role, secrets } from './world.ts'

/** A certificate of this machine that signed itself; the folder it is in. */
export function certificate(): string {
  const folder = temporaryFolder('tls')
  const files = ['-keyout', join(folder, 'key.pem'), '-out', join(folder, 'cert.pem')]
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '1']
  const subject = ['-subj', '/CN=bench', '-addext', 'subjectAltName=IP:127.0.0.1']
  execFileSync('openssl', ['req', '-x509', ...kind, ...files, ...subject], { stdio: 'ignore' })
  return folder
}

export type Receiver = {
  url: string
  /** What has arrived so far, a few milliseconds late. */
  count(): number
  /** The delays since it was last asked; from now on `/slow` takes this long. */
  turn(slowMs: number): Promise<Delays>
}

export async function startReceiver(folder: string): Promise<Receiver> {
  const child = start([fromHere('./webhooks-receiver.ts'), folder], { ipc: true })
  let count = 0
  const first = once(child, 'message') as Promise<[Told]>
  child.on('message', (told: Told) => {
    if ('count' in told) count = told.count
  })
  const [told] = await first
  if (!('port' in told)) throw new Error('The receiver does not say where it is')
  return {
    url: `https://127.0.0.1:${told.port}`,
    count: () => count,
    async turn(slowMs) {
      const answer = new Promise<Delays>((resolve) => {
        const hear = (said: Told) => {
          if (!('delays' in said)) return
          child.off('message', hear)
          resolve(said.delays)
        }
        child.on('message', hear)
      })
      child.send({ slowMs })
      return answer
    },
  }
}

export type WebhookWorld = {
  orgIds: string[]
  /** A new access token each time, of someone who may raise events everywhere. */
  token(): Promise<string>
}

export type WebhookSpec = { url: string; events: EventType[] | ['*'] }

/** Organizations of one partner, each with the webhooks that are wanted. */
export async function buildWebhookWorld(
  place: Place,
  orgs: number,
  wanted: readonly WebhookSpec[],
): Promise<WebhookWorld> {
  const storage = await openStorage(place)
  const cipher = createCipher([secrets.APP_ENCRYPTION_KEY])
  const now = new Date().toISOString()
  const made = () => ({ id: newId(), now })
  try {
    await migrate(storage, migrations)
    const world = await storage.write(async (tx) => {
      await seedRoles(tx, now)
      const about = { name: 'Acme', slug: 'acme', type: 'msp', plan: 'pro', billingEmail: null } as const
      const partner = makePartner({ ...about, ...noCaps }, made())
      await insertPartner(tx, partner)
      const orgIds: string[] = []
      for (let n = 1; n <= orgs; n++) {
        const names = { name: `Organization ${n}`, slug: `organization-${n}` }
        const org = makeOrg({ ...names, ...orgDefaults }, partner.id, made())
        await insertOrg(tx, org)
        orgIds.push(org.id)
      }
      const userId = await addUser(tx, 'partner', now)
      const membership = { partnerId: partner.id, userId, roleId: role('Partner Admin') }
      await joinPartner(tx, { ...membership, orgs: 'all' }, now)
      return { orgIds, token: await tokensOf(tx, { userId, partnerId: partner.id, now }) }
    })
    for (const orgId of world.orgIds) {
      await storage.write(async (tx) => {
        for (const [n, one] of wanted.entries()) {
          const about = { name: `Webhook ${n}`, secret: `whsec_${'A'.repeat(43)}=`, headers: [], orgId }
          await insertWebhook(tx, cipher, makeWebhook({ ...about, ...one }, { ...made(), by: newId() }))
        }
      })
    }
    return world
  } finally {
    await storage.close()
  }
}

async function tokensOf(
  tx: Db,
  { userId, partnerId, now }: { userId: string; partnerId: string; now: string },
): Promise<() => Promise<string>> {
  const id = newId()
  const context = { kind: 'partner', partnerId } as const
  const session = { id, userId, context, mfa: true, tokenHash: id, expiresAt: addSeconds(now, 4 * 3600) }
  await insertSession(tx, session, now)
  const claims = { userId, sessionId: id, context, authEpoch: 1, mfaEpoch: 1, mfa: true }
  return () => createAccessTokens(secrets.JWT_SECRET).sign(claims, new Date())
}

/** What happened, of about the size that such things have. */
export const happened = {
  deviceId: '01923f7e-0000-7000-8000-000000000000',
  hostname: 'reception-laptop-17',
  osType: 'windows',
  patchId: 'KB5031356',
  version: '10.0.19045.3570',
  severity: 'important',
  installedAt: '2026-03-01T11:00:00.000Z',
  note: 'Cumulative update for the operating system, with fixes for printing and for the sign-in screen.',
}

/** Raises events at the service, each as a request of its own. */
export function raiserAt({ url }: Server, { orgIds, token }: WebhookWorld) {
  const agent = new Agent()
  let signed = Promise.resolve('')
  let signedAt = Number.NEGATIVE_INFINITY
  let turn = 0
  return async (type: EventType): Promise<void> => {
    if (performance.now() - signedAt > 300_000) {
      signedAt = performance.now()
      signed = token()
    }
    turn = (turn + 1) % orgIds.length
    const reply = await agent.request({
      origin: url,
      path: '/api/v1/events',
      method: 'POST',
      headers: { authorization: `Bearer ${await signed}`, 'content-type': 'application/json' },
      body: JSON.stringify({ orgId: orgIds[turn], type, data: happened }),
    })
    if (reply.statusCode !== 202)
      throw new Error(`POST /events: ${reply.statusCode} ${await reply.body.text()}`)
    await reply.body.dump()
  }
}

/** Waits until so many have arrived in all. @throws when they do not, or when there are more */
export async function until(receiver: Receiver, wanted: number, patience = 60_000): Promise<void> {
  const end = performance.now() + patience
  while (receiver.count() < wanted && performance.now() < end) await sleep(5)
  if (receiver.count() !== wanted) throw new Error(`${receiver.count()} of ${wanted} deliveries arrived`)
}
