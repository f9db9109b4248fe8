import { randomBytes } from 'node:crypto'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import S3rver from 's3rver'
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest'
import { storeAt } from '../../../daemon/backup/open-store.ts'
import { partBytes } from '../../../daemon/integrations/s3-multipart.ts'
import { onEveryDatabase, openMigrated, temporaryFolder } from '../../databases.ts'
import { startService, testSecrets } from '../../harness.ts'
import { buildWorld } from '../../world.ts'
import { svc } from './binary.ts'
import { emptyPlace } from './filled.ts'

let s3: S3rver
let at: string

beforeAll(async () => {
  const directory = await temporaryFolder()
  const configureBuckets = [{ name: 'backups', configs: [] }]
  s3 = new S3rver({ port: 0, address: '127.0.0.1', silent: true, directory, configureBuckets })
  at = `http://127.0.0.1:${(await s3.run()).port}`
})

afterAll(() => s3.close())

const settings = (endpoint: string) => ({
  BACKUP_S3_ENDPOINT: endpoint,
  BACKUP_S3_ACCESS_KEY_ID: 'S3RVER',
  BACKUP_S3_SECRET_ACCESS_KEY: 'S3RVER',
  OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
})

type Upload = { key: string; id: string; initiated: Date }

/** In front of the storage: knows which uploads are open, as the storage itself does not, and may change what passes. */
async function proxyWith(
  change: (message: IncomingMessage, body: Buffer) => 'fail' | undefined = () => undefined,
) {
  const open = new Map<string, Upload>()
  const answer = (outgoing: ServerResponse, status: number, text = '') =>
    void outgoing.writeHead(status).end(text)
  const server = createServer((incoming, outgoing) => {
    const pieces: Buffer[] = []
    incoming.on('data', (piece: Buffer) => pieces.push(piece))
    incoming.on('end', () => {
      const url = new URL(incoming.url!, at)
      const { method = '' } = incoming
      const id = url.searchParams.get('uploadId')
      if (method === 'DELETE' && id !== null) return answer(outgoing, open.delete(id) ? 204 : 404)
      if (method === 'GET' && id !== null) return answer(outgoing, 200, '<ListPartsResult></ListPartsResult>')
      if (method === 'GET' && url.searchParams.has('uploads')) {
        const list = [...open.values()].map(
          (one) =>
            `<Upload><Key>${one.key}</Key><UploadId>${one.id}</UploadId><Initiated>${one.initiated.toISOString()}</Initiated></Upload>`,
        )
        return answer(
          outgoing,
          200,
          `<ListMultipartUploadsResult>${list.join('')}</ListMultipartUploadsResult>`,
        )
      }
      const body = Buffer.concat(pieces)
      if (change(incoming, body) === 'fail') return answer(outgoing, 500)
      const to = request(`${at}${incoming.url}`, { method, headers: incoming.headers }, (reply) => {
        const got: Buffer[] = []
        reply.on('data', (piece: Buffer) => got.push(piece))
        reply.on('end', () => {
          const text = Buffer.concat(got)
          const made = /<UploadId>(\w+)</.exec(text.toString('latin1'))?.[1]
          const key = url.pathname.replace(/^\/backups\//, '')
          if (method === 'POST' && url.searchParams.has('uploads') && made)
            open.set(made, { key, id: made, initiated: new Date() })
          if (method === 'POST' && id !== null) open.delete(id)
          outgoing.writeHead(reply.statusCode ?? 500, reply.headers).end(text)
        })
      })
      to.end(body)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, open }
}

/** A store behind a proxy, in the environment of this process. */
async function storeBehind(prefix: string, change?: Parameters<typeof proxyWith>[0]) {
  const proxy = await proxyWith(change)
  for (const [name, value] of Object.entries(settings(proxy.url))) vi.stubEnv(name, value)
  onTestFinished(() => void vi.unstubAllEnvs())
  return { store: storeAt(`s3://backups/${prefix}`), ...proxy }
}

const name = 'svc-20260301T120000Z-0.1.0.backup'
const content = randomBytes(2 * partBytes + 12_345)

async function* pieces(failAt = Number.POSITIVE_INFINITY) {
  for (let from = 0; from < content.length; from += 100_000) {
    if (from >= failAt) throw new Error('the source fails')
    yield content.subarray(from, from + 100_000)
  }
}

const collected = async (stream: AsyncIterable<Buffer>) => {
  const all: Buffer[] = []
  for await (const chunk of stream) all.push(chunk)
  return Buffer.concat(all)
}

it('holds what was sent in parts, and overwrites nothing', async () => {
  const { store, open } = await storeBehind('whole')
  expect(await store.write(name, pieces())).toEqual({ bytes: content.length })
  expect([...open]).toEqual([])
  expect((await collected(await store.read(name))).equals(content)).toBe(true)
  expect(await collected(await store.read(name, 10))).toEqual(content.subarray(0, 10))
  await expect(store.write(name, pieces())).rejects.toThrow('exists already: a backup overwrites nothing')
  expect(await store.list()).toEqual([{ name, place: `s3://backups/whole/${name}`, bytes: content.length }])
  await store.remove(name)
  expect(await store.list()).toEqual([])
})

const isPart = ({ method, url = '' }: IncomingMessage, n: number) =>
  method === 'PUT' && url.includes(`partNumber=${n}`)

it('has nothing after a failure halfway or an altered part', async () => {
  const failing = await storeBehind('failing', (message) => (isPart(message, 2) ? 'fail' : undefined))
  await expect(failing.store.write(name, pieces())).rejects.toThrow(/^Cannot write s3:\/\/backups\/failing\//)
  const altering = await storeBehind('altering', (message, body) => {
    if (isPart(message, 2)) body[body.length - 7]! ^= 1
    return undefined
  })
  await expect(altering.store.write(name, pieces())).rejects.toThrow('the stored object is not what was sent')
  const source = await storeBehind('source')
  await expect(source.store.write(name, pieces(partBytes + 1_000_000))).rejects.toThrow(/^the source fails$/)
  for (const { store, open } of [failing, altering, source]) {
    expect([...open]).toEqual([])
    expect(await store.list()).toEqual([])
  }
})

it('loses the uploads that killed backups left, and no others', async () => {
  const { store, open } = await storeBehind('left')
  const initiated = new Date(Date.now() - 7_200_000)
  const of = (id: string, key: string, since = initiated) => open.set(id, { id, key, initiated: since })
  of('killed', `left/${name}`)
  of('busy', `left/${name}`, new Date())
  of('foreign', 'left/of-somebody-else.tar')
  await store.sweep(new Date(Date.now() - 3_600_000))
  expect([...open.keys()]).toEqual(['busy', 'foreign'])
})

onEveryDatabase((kind, open) => {
  it('takes a backup, and gives it to a drill and a restore', { timeout: 180_000 }, async () => {
    const service = await startService(open)
    await buildWorld(service)
    await service.close()
    const { url } = await proxyWith()
    const env = { ...testSecrets, ...settings(url), BACKUP_TARGET: `s3://backups/${kind}` }
    const made = await svc(['db', 'backup', '--out', env.BACKUP_TARGET, '--json'], service, env)
    expect([made.code, made.stderr]).toEqual([0, ''])
    const { file, rows } = JSON.parse(made.stdout)
    expect(file).toMatch(new RegExp(`^s3://backups/${kind}/svc-.*\\.backup$`))
    const drilled = await svc(['db', 'drill', '--json'], service, env)
    expect([drilled.code, JSON.parse(drilled.stdout).backup.file]).toEqual([0, file])
    const restored = await svc(['db', 'restore', file, '--json'], await emptyPlace(kind), env)
    expect(JSON.parse(restored.stdout)).toMatchObject({ rows, file })
  })
})

it('that is down makes a failure with a sentence', async () => {
  const { dataDir } = await openMigrated('sqlite')
  const env = { ...testSecrets, ...settings('http://127.0.0.1:1') }
  const { code, stderr } = await svc(['db', 'backup', '--out', 's3://backups/svc'], { dataDir }, env)
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(/Error: Cannot .* s3:\/\/backups\/svc.*ECONNREFUSED/),
  ])
})
