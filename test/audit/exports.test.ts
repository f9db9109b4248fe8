import { parse } from 'csv-parse/sync'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { exportColumns } from '../../src/audit/exports/contract.ts'
import { csvCell } from '../../src/audit/exports/rules.ts'
import type { Client } from '../../src/core/client.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { addOrgUser, addRole, buildWorld } from '../world.ts'
import { happening, piled, recorded } from './rows.ts'

type Headers = Record<string, string | undefined>

async function download(client: Client, query: Record<string, string> = {}) {
  const chunks: Buffer[] = []
  let headers: Headers = {}
  const stream = client.stream(api.auditExports.download, { query }, (received) => {
    headers = received
  })
  for await (const chunk of stream) chunks.push(chunk)
  return { headers, text: Buffer.concat(chunks).toString() }
}

const rowsIn = (text: string) => parse(text, { columns: true }) as Record<string, string>[]

describe('a CSV cell', () => {
  it.each([
    ['=1+1', "'=1+1"],
    ['+1', "'+1"],
    ['-1', "'-1"],
    ['@SUM(A1)', "'@SUM(A1)"],
    ['\tx', "'\tx"],
    ['\rx', '"\'\rx"'],
    ['\nx', '"\'\nx"'],
    ['＝1', "'＝1"],
    ['=a,"b"', '"\'=a,""b"""'],
    ['a=1', 'a=1'],
    ['a,b', '"a,b"'],
    [null, ''],
    [{ a: 1 }, '"{""a"":1}"'],
  ])('%j is written as %s', (value, written) => {
    expect(csvCell(value)).toBe(written)
  })
})

inTurn((open) => {
  const begin = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    return { service, ...world, client: service.client(world.tokens.bakery) }
  }

  describe('an export', () => {
    it('contains what the list shows with the same filters, in every format', async () => {
      const { client } = await begin()
      const query = { action: 'create', user: 'admin' }
      const { data } = await client.call(api.auditLogs.list, { query })
      expect(data.length).toBeGreaterThan(3)
      const ids = data.map(({ id }) => id)

      const csv = await download(client, query)
      expect(csv.headers).toMatchObject({
        'content-type': 'text/csv; charset=utf-8',
        'content-disposition': 'attachment; filename="audit-logs.csv"',
        'x-truncated': 'false',
        'x-total-count': String(ids.length),
      })
      expect(csv.text.split('\r\n')[0]).toBe(exportColumns.join(','))
      const rows = rowsIn(csv.text)
      expect(rows.map(({ id }) => id)).toEqual(ids)
      expect(rows[0]).toMatchObject({ action: data[0]!.action, actorEmail: data[0]!.user.email })
      expect(JSON.parse(rows[0]!.details!)).toEqual(data[0]!.details)

      const ndjson = await download(client, { ...query, format: 'ndjson' })
      const lines = ndjson.text.trimEnd().split('\n')
      expect(lines.map((line) => (JSON.parse(line) as { id: string }).id)).toEqual(ids)

      const json = await client.call(api.auditExports.create, { body: { filters: query } })
      expect(json).toMatchObject({ total: ids.length, truncated: false, nextCursor: null })
      expect(json.data.map(({ id }) => id)).toEqual(ids)
      // None of these entries is damaged.
      const filled = exportColumns.filter((column) => column !== 'damage')
      expect(Object.keys(json.data[0]!).sort()).toEqual(filled.sort())
      expect(rows.map(({ damage }) => damage)).toEqual(ids.map(() => ''))
    })

    it('has the selected columns and time range, and omits details on request', async () => {
      const { service, client, orgs } = await begin()
      await recorded(service, [
        [happening(orgs.bakery.id, { resourceName: '=cmd()' }), '2030-01-01T00:00:00.000Z'],
        [happening(orgs.bakery.id), '2030-01-02T00:00:00.000Z'],
      ])
      const range = { from: '2029-12-31T00:00:00Z', to: '2030-01-01T12:00:00Z' }
      const csv = await download(client, { ...range, columns: 'action,resourceName' })
      expect(csv.text).toBe("action,resourceName\r\nthing.happen,'=cmd()\r\n")
      const body = { dateRange: range, includeDetails: false }
      const { data } = await client.call(api.auditExports.create, { body })
      expect(data).toHaveLength(1)
      expect(data[0]).not.toHaveProperty('details')
      await expect(download(client, { columns: 'action,password' })).rejects.toMatchObject({ status: 400 })
    })

    // Inserting this many linked rows takes long on Postgres.
    it('is limited to 10,000 entries, reports that there are more, and continues from a cursor', async () => {
      const { service, client, orgs } = await begin()
      await piled(service, orgs.bakery.id, 10_003)
      const pile = { action: 'pile.up', columns: 'resourceName' }
      const csv = await download(client, pile)
      expect(csv.headers).toMatchObject({ 'x-truncated': 'true', 'x-total-count': '10000' })
      const names = rowsIn(csv.text).map(({ resourceName }) => resourceName)
      expect([names.length, names[0], names.at(-1)]).toEqual([10_000, 'number 10002', 'number 3'])
      const json = await client.call(api.auditExports.create, {
        body: { filters: { action: 'pile.up' }, columns: ['resourceName'] },
      })
      expect(json).toMatchObject({ total: 10_000, truncated: true })
      expect(json.nextCursor).toBe(csv.headers['x-next-cursor'])
      const rest = await download(client, { ...pile, cursor: json.nextCursor! })
      expect(rest.text).toBe('resourceName\r\nnumber 2\r\nnumber 1\r\nnumber 0\r\n')
      expect(rest.headers['x-truncated']).toBe('false')
      expect(rest.headers['x-next-cursor']).toBeUndefined()
    })

    it('needs the permission to export, and is limited to the organizations of the caller', async () => {
      const { service, client, tokens, orgs } = await begin()
      const role = await addRole(service, orgs.bakery.id, 'Reader', ['audit:read'])
      const reader = service.client(await addOrgUser(service, 'reader', orgs.bakery.id, { role }))
      await reader.call(api.auditLogs.list)
      await expect(download(reader)).rejects.toMatchObject({ status: 403, code: 'forbidden' })
      await expect(download(client, { orgId: orgs.harbor.id })).rejects.toMatchObject({
        code: 'org_access_denied',
      })
      const { text } = await download(client, { format: 'ndjson' })
      expect(text).toContain('bakery alert')
      expect(text).not.toContain('harbor')
      const of = await service
        .client(tokens.system)
        .call(api.auditExports.create, { query: { orgId: orgs.garage.id } })
      const { pagination } = await service.client(tokens.garage).call(api.auditLogs.list)
      // The export itself has added an entry.
      expect(of.total).toBe(pagination.total - 1)
    })
  })
})
