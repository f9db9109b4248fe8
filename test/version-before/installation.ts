import { expect } from 'vitest'
import { api } from '../../src/api.ts'
import type { Client } from '../../src/core/client.ts'
import { machine, readChain, send } from '../daemon/request.ts'
import { adminEmail, adminPassword, clientOf } from '../harness.ts'
import type { receiver } from '../webhooks/receiver.ts'

type Receiver = Awaited<ReturnType<typeof receiver>>
type Agent = { agentId: string; authToken: string }

/** What a small installation has. It is used through any of its processes, of whichever version. */
export type Installation = {
  orgId: string
  webhookId: string
  enrollmentKey: string
  agents: Agent[]
  apiKey: string
  receiver: Receiver
}

export const signedIn = async (url: string): Promise<Client> => {
  const body = { email: adminEmail, password: adminPassword }
  const { tokens } = await clientOf(url).call(api.auth.login, { body })
  return clientOf(url, tokens!.accessToken)
}

export async function fill(url: string, receiver: Receiver): Promise<Installation> {
  const client = await signedIn(url)
  const partner = { name: 'Acme', slug: 'acme' }
  const { id: partnerId } = await client.call(api.partners.create, { body: partner })
  const org = { partnerId, name: 'Bakery', slug: 'bakery' }
  const { id: orgId } = await client.call(api.orgs.create, { body: org })
  const { key } = await client.call(api.enrollmentKeys.create, {
    body: { orgId, name: 'till', maxUsage: 50 },
  })
  const keyBody = { orgId, name: 'reporting', scopes: ['devices:read' as const] }
  const { key: apiKey } = await client.call(api.apiKeys.create, { body: keyBody })
  const hook = { orgId, name: 'Tickets', url: receiver.url, events: ['patch.installed' as const] }
  const { id: webhookId } = await client.call(api.webhooks.create, { body: hook })
  return { orgId, webhookId, enrollmentKey: key, agents: [], apiKey: apiKey!, receiver }
}

/** An agent that enrolls, reports and is asked for its state. */
export async function heartbeat(url: string, { agentId, authToken }: Agent): Promise<void> {
  const body = { status: 'ok' as const, agentVersion: '0.1.0' }
  const { status } = await send(url, 'POST', `/api/v1/agents/${agentId}/heartbeat`, {
    token: authToken,
    body,
  })
  expect(status).toBe(200)
}

/**
 * What people, machines and receivers do, through one process: everything that was made before is there, a change by it is
 * seen by all, and an event is delivered once.
 */
export async function use(
  url: string,
  made: Installation,
  name: string,
  others: string[] = [],
): Promise<void> {
  const client = await signedIn(url)
  const { orgId } = made
  for (const agent of made.agents) await heartbeat(url, agent)
  const agent = await clientOf(url).call(api.agents.enroll, { body: machine(made.enrollmentKey, name) })
  made.agents.push(agent)
  for (const other of [url, ...others]) await heartbeat(other, agent)

  const { id } = await client.call(api.sites.create, { body: { orgId, name, timezone: 'Europe/Paris' } })
  await client.call(api.sites.update, { params: { id }, body: { name: `${name}, renamed` } })
  const { key, id: keyId } = await client.call(api.apiKeys.create, {
    body: { orgId, name, scopes: ['devices:read' as const] },
  })
  for (const other of [url, ...others]) {
    for (const apiKey of [key!, made.apiKey]) {
      const seen = await clientOf(other, undefined, { 'x-api-key': apiKey }).call(api.devices.list, {
        query: { search: name },
      })
      expect(seen.data.map(({ hostname }) => hostname)).toEqual([name])
    }
  }
  await client.call(api.apiKeys.revoke, { params: { id: keyId } })
  for (const other of [url, ...others]) {
    const { status } = await send(other, 'GET', '/api/v1/devices', { headers: { 'x-api-key': key! } })
    expect(status).toBe(401)
  }

  const type = 'patch.installed' as const
  await client.call(api.events.create, { body: { orgId, type, data: { name } } })
  const { got } = made.receiver
  const arrived = () => got.filter(({ event }) => event.data.name === name).length
  await expect.poll(arrived, { timeout: 10_000 }).toBe(1)
  const deliveries = async () => {
    const params = { id: made.webhookId }
    return (await client.call(api.webhookDeliveries.list, { params })).data.map(({ status }) => status)
  }
  await expect.poll(deliveries, { timeout: 10_000 }).not.toContain('pending')
  await verify(url, made, name)
}

/** Both chains are sound, and the last changes are in them. */
export async function verify(url: string, { orgId }: Installation, name: string): Promise<void> {
  const client = await signedIn(url)
  const chain = await readChain(client, orgId)
  expect(chain.verdict.verdict).toBe('sound')
  expect(chain.entries.map(({ resourceName }) => resourceName)).toContain(`${name}, renamed`)
  expect((await readChain(client)).verdict.verdict).toBe('sound')
}
