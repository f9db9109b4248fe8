import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { openCheckpoint, openSuccession, treeHeadOf } from '../../src/audit/checkpoints/checkpoint.ts'
import type { AuditProof } from '../../src/audit/checkpoints/contract.ts'
import { isConsistent, isIncluded, leafHash } from '../../src/audit/checkpoints/merkle-tree.ts'
import { parseVerifier } from '../../src/audit/checkpoints/signed-note.ts'
import type { Client } from '../../src/core/client.ts'
import { newId } from '../../src/core/new-id.ts'
import { inTurn } from '../databases.ts'
import { serviceOn, startService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { cutTo, happen, seedOf } from './chains.ts'

const { checkpoint, proof, key } = api.auditCheckpoints
const bytes = (base64: string) => Buffer.from(base64, 'base64')

async function keysOf(client: Client, query: { orgId?: string } = {}): Promise<Buffer[]> {
  const { current, former } = await client.call(key, { query })
  return [current, ...former].map(({ publicKey }) => bytes(publicKey))
}

/** The checkpoint in a note that is signed by one of the keys. */
function opened(note: string, keys: Buffer[]) {
  const it = openCheckpoint(note, keys)
  if (it.state !== 'signed') throw new Error(`the note is ${it.state}`)
  return it.checkpoint
}

inTurn((open) => {
  const begin = async () => {
    const database = await open()
    const service = await serviceOn(database)
    const world = await buildWorld(service)
    const client = service.client(world.tokens.bakery)
    return { database, service, ...world, client, keys: await keysOf(client) }
  }

  describe('GET /audit-logs/checkpoint', () => {
    it('signs the current chain, for users who may read it', async () => {
      const { client, orgs, keys } = await begin()
      const one = await client.call(checkpoint)
      const { head, root, orgId, time } = opened(one.checkpoint, keys)
      expect({ ...head, root: root.toString('base64'), orgId, time }).toEqual({
        seq: one.seq,
        checksum: one.checksum,
        root: one.root,
        orgId: orgs.bakery.id,
        time: one.time,
      })
      const { data } = await client.call(api.auditLogs.heads)
      expect(data[0]).toMatchObject({ seq: one.seq, checksum: one.checksum })
    })

    it('returns the requested chain, which a partner has to name', async () => {
      const { service, tokens, orgs } = await begin()
      const system = service.client(tokens.system)
      expect(await system.call(checkpoint)).toMatchObject({ orgId: null })
      const query = { orgId: orgs.bakery.id }
      expect(await service.client(tokens.acme).call(checkpoint, { query })).toMatchObject(query)
      await expect(service.client(tokens.acme).call(checkpoint)).rejects.toMatchObject({ status: 400 })
      await expect(service.client(tokens.globex).call(checkpoint, { query })).rejects.toMatchObject({
        status: 403,
      })
    })

    it('answers 409 when the history differs from what was signed', async () => {
      const { service, client, orgs } = await begin()
      const { seq } = await client.call(checkpoint)
      await cutTo(service.storage, orgs.bakery.id, seq - 2)
      await expect(client.call(checkpoint)).rejects.toMatchObject({
        status: 409,
        code: 'audit_history_changed',
        details: { kind: 'truncated', signed: seq, found: seq - 2 },
      })
      const ready = await fetch(`${service.url}/health/ready`)
      expect(await ready.json()).toEqual({
        status: 'ready',
        checks: { database: 'ok', audit: 'tampered: 1' },
      })
    })
  })

  describe('GET /audit-logs/proof', () => {
    const included = (one: AuditProof, keys: Buffer[]): boolean => {
      const { root } = opened(one.checkpoint, keys)
      const leaf = leafHash(one.entry!)
      return (
        one.leaf === leaf.toString('base64') &&
        isIncluded(leaf, one.index!, one.size!, one.path.map(bytes), root)
      )
    }

    it('proves that each entry is in the chain', async () => {
      const { client, keys } = await begin()
      const { data } = await client.call(api.auditLogs.list, { query: { limit: 100 } })
      for (const { id, seq } of data) {
        const one = await client.call(proof, { query: { id } })
        expect(one).toMatchObject({ index: seq - 1 })
        expect(JSON.parse(one.entry!)).toMatchObject({ id, seq })
        expect(included(one, keys)).toBe(true)
        expect(included({ ...one, entry: one.entry!.replace('"seq":', '"seq":1') }, keys)).toBe(false)
      }
    })

    it('proves that a chain has only grown', async () => {
      const { client, keys } = await begin()
      const older = opened((await client.call(checkpoint)).checkpoint, keys)
      for (const name of ['Annex', 'Cellar', 'Attic']) {
        await client.call(api.sites.create, { body: { name, orgId: older.orgId! } })
      }
      const grown = await client.call(proof, { query: { since: older.head.seq } })
      const newer = opened(grown.checkpoint, keys)
      expect(grown).toMatchObject({ from: older.head.seq, to: newer.head.seq })
      expect(newer.head.seq).toBeGreaterThanOrEqual(older.head.seq + 3)
      expect(isConsistent(treeHeadOf(older), treeHeadOf(newer), grown.path.map(bytes))).toBe(true)
    })

    it('answers 409 when a part of the tree is missing that only a proof needs', async () => {
      const { service, client, orgs } = await begin()
      await happen(service.storage, orgs.bakery.id, 300)
      const { data } = await client.call(api.auditLogs.list, { query: { limit: 1 } })
      const newer = data[0]!.id
      const older = (await client.call(api.auditLogs.list, { query: { page: 4, limit: 100 } })).data.at(
        -1,
      )!.id
      await client.call(checkpoint)
      await service.storage.write((tx) =>
        tx.deleteFrom('audit_tiles').where('level', '=', 0).where('idx', '=', 0).execute(),
      )
      await client.call(checkpoint)
      await client.call(proof, { query: { id: newer } })
      for (const query of [{ id: older }, { since: 1 }]) {
        await expect(client.call(proof, { query })).rejects.toMatchObject({
          status: 409,
          code: 'audit_history_changed',
        })
      }
    })

    it('refuses neither or both parameters, sizes out of range, and entries of others', async () => {
      const { service, tokens, orgs, client } = await begin()
      const { data } = await client.call(api.auditLogs.list)
      const id = data[0]!.id
      for (const query of [{}, { id, since: 1 }, { since: 0 }, { since: 999 }]) {
        await expect(client.call(proof, { query })).rejects.toMatchObject({ status: 400 })
      }
      const stranger = service.client(tokens.harbor)
      await expect(stranger.call(proof, { query: { id } })).rejects.toMatchObject({ status: 404 })
      await expect(client.call(proof, { query: { id: newId() } })).rejects.toMatchObject({ status: 404 })
      const elsewhere = { id, orgId: orgs.garage.id }
      await expect(service.client(tokens.acme).call(proof, { query: elsewhere })).rejects.toMatchObject({
        status: 404,
      })
    })
  })

  describe('GET /audit-logs/key', () => {
    it('returns verifier lines in the name of the chain', async () => {
      const { service, tokens, orgs, client } = await begin()
      const { current, former, successions } = await client.call(key)
      expect(parseVerifier(current.verifier)).toEqual({
        name: `svc/audit/${orgs.bakery.id}`,
        publicKey: bytes(current.publicKey),
      })
      expect([former, successions]).toEqual([[], []])
      const system = await service.client(tokens.system).call(key)
      expect(system.current.verifier).toMatch(/^svc\/audit\/system\+/)
      expect(system.current.publicKey).toBe(current.publicKey)
    })

    it('links the new key of a restarted service to the previous one', async () => {
      const { database, service, tokens, client, keys } = await begin()
      const { checkpoint: note } = await client.call(checkpoint)
      await service.close()
      const next = await serviceOn(database, { env: { AUDIT_SIGNING_KEY: seedOf('n').toString('base64') } })
      const restarted = next.client(tokens.bakery)
      const { current, former, successions } = await restarted.call(key)
      expect(former.map(({ publicKey }) => bytes(publicKey))).toEqual(keys)
      expect(openSuccession(successions[0]!)).toMatchObject({ from: keys[0], to: bytes(current.publicKey) })
      const { checkpoint: newer } = await restarted.call(checkpoint)
      expect(opened(newer, [bytes(current.publicKey)])).toMatchObject({ orgId: opened(note, keys).orgId })
    })
  })

  describe('the file of a chain', () => {
    const linesOf = async (client: Client) => {
      let text = ''
      for await (const chunk of client.stream(api.auditLogs.chain, { query: {} })) text += chunk.toString()
      return text
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line))
    }

    it('ends with a fresh checkpoint of its head', async () => {
      const { client, keys } = await begin()
      const lines = await linesOf(client)
      const { head, checkpoint: note } = lines.at(-1)
      expect(opened(note, keys).head).toEqual(head)
      expect(lines).toHaveLength(head.seq + 2)
    })

    it('of a changed history is still returned, with the last signed checkpoint', async () => {
      const { service, client, orgs, keys } = await begin()
      const { seq, checkpoint: signed } = await client.call(checkpoint)
      await cutTo(service.storage, orgs.bakery.id, seq - 2)
      const { head, checkpoint: note } = (await linesOf(client)).at(-1)
      expect(head.seq).toBe(seq - 2)
      expect(note).toBe(signed)
      expect(opened(note, keys).head.seq).toBe(seq)
    })

    it('lists the successions of keys', async () => {
      const { database, service, tokens } = await begin()
      await service.close()
      const next = await serviceOn(database, { env: { AUDIT_SIGNING_KEY: seedOf('n').toString('base64') } })
      const [header] = await linesOf(next.client(tokens.bakery))
      expect(header.keys.map(openSuccession)).toMatchObject([{ to: expect.any(Buffer) }])
    })
  })

  describe('GET /metrics', () => {
    it('reports the verification results to callers with the token', async () => {
      const service = await startService(open, { env: { METRICS_TOKEN: 'a token for metrics' } })
      const at = `${service.url}/metrics`
      const headers = { authorization: 'Bearer a token for metrics' }
      expect((await fetch(at)).status).toBe(401)
      expect((await fetch(at, { headers: { authorization: 'Bearer a token for metric' } })).status).toBe(401)
      const reply = await fetch(at, { headers })
      expect(reply.headers.get('content-type')).toContain('text/plain')
      const text = await reply.text()
      for (const line of [
        'svc_audit_chain_verdict{verdict="tampered"} 0',
        'svc_audit_verified_entries_total 0',
        'svc_audit_checkpoint_refused_total 0',
      ]) {
        expect(text.split('\n')).toContain(line)
      }
      expect(text).toMatch(/^process_resident_memory_bytes \d+$/m)
    })

    it('does not exist when no token is configured', async () => {
      const service = await startService(open)
      expect((await fetch(`${service.url}/metrics`)).status).toBe(404)
    })
  })

  it('the last checkpoint of each chain is stored in the data directory', async () => {
    const { database, client, orgs } = await begin()
    await client.call(checkpoint)
    expect(await readdir(join(database.dataDir, 'checkpoints'))).toEqual([orgs.bakery.id])
  })
})
