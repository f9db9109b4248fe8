import { z } from 'zod'
import { type Contract, endpoint, userAccess } from '../../src/core/endpoint.ts'
import { Problem } from '../../src/core/errors.ts'
import { idOf, text } from '../../src/core/schema.ts'
import { getDevice } from '../../src/devices/store.ts'
import type { HandlersOf } from '../../src/handler.ts'
import type { Db } from '../../src/storage/open.ts'
import type { TestService } from '../harness.ts'
import { serveContract } from './serve-contract.ts'

/* A small service that breaks tenant isolation in every way that the test has to detect. */

const tag = 'House'
const access = userAccess()
const Thing = z.object({ id: idOf('device'), hostname: z.string() })
const params = z.strictObject({ id: idOf('device') })
const audit = { action: 'house.change', resource: 'device' } as const

const house = {
  list: endpoint({
    method: 'GET',
    path: '/house',
    summary: 'Forgets the scope',
    tag,
    access,
    reply: z.object({ data: z.array(Thing) }),
  }),
  show: endpoint({
    method: 'GET',
    path: '/house/:id',
    summary: 'Looks up by id alone',
    tag,
    access,
    params,
    reply: Thing,
  }),
  hint: endpoint({
    method: 'GET',
    path: '/house/:id/hint',
    summary: 'Refuses, but otherwise where there is something to refuse',
    tag,
    access,
    params,
    reply: Thing,
  }),
  gossip: endpoint({
    method: 'GET',
    path: '/house/:id/gossip',
    summary: 'Refuses by name',
    tag,
    access,
    params,
    reply: Thing,
  }),
  fair: endpoint({
    method: 'GET',
    path: '/house/:id/fair',
    summary: 'Does it right',
    tag,
    access,
    params,
    reply: Thing,
  }),
  rename: endpoint({
    method: 'PATCH',
    path: '/house/:id',
    summary: 'Changes by id alone',
    tag,
    access,
    params,
    body: z.strictObject({ hostname: text(255, 1) }),
    reply: z.object({ success: z.boolean() }),
    audit,
    example: { hostname: 'mine now' },
  }),
  wipe: endpoint({
    method: 'POST',
    path: '/house/wipe',
    idempotencyKey: 'honored',
    summary: 'Changes the records of everyone',
    tag,
    access,
    reply: z.object({ success: z.boolean() }),
    audit,
  }),
}

export const leakyContract: Contract = { house }

const find = (db: Db, id: string) =>
  db.selectFrom('devices').select(['id', 'hostname']).where('id', '=', id).executeTakeFirst()

const handlers: HandlersOf<typeof house> = {
  list: async ({ db }) => ({ data: await db.selectFrom('devices').select(['id', 'hostname']).execute() }),
  async show({ db, params: { id } }) {
    const found = await find(db, id)
    if (!found) throw new Problem('not_found')
    return found
  },
  async rename({ db, params: { id }, body }) {
    await db.updateTable('devices').set({ hostname: body.hostname }).where('id', '=', id).execute()
    return { success: true }
  },
  async wipe({ db }) {
    await db.updateTable('devices').set({ display_name: 'wiped' }).execute()
    return { success: true }
  },
  async hint({ db, params: { id } }) {
    throw new Problem((await find(db, id)) ? 'forbidden' : 'not_found')
  },
  async gossip({ db, params: { id } }) {
    throw new Problem('not_found', `You may not see ${(await find(db, id))?.hostname}`)
  },
  fair: ({ db, scope, params: { id } }) => getDevice(db, scope, id),
}

export const leakyService = (service: TestService) =>
  serveContract(service, leakyContract, { house: handlers })
