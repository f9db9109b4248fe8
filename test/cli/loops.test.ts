import { expect, it, onTestFinished } from 'vitest'
import { ServeProcess, serviceEnv } from '../daemon/process.ts'
import { type Open, onEveryDatabase, temporaryFolder } from '../databases.ts'
import { depth, takesTurn } from '../depth.ts'
import { adminEmail, adminPassword, usualLimits } from '../harness.ts'
import { binary, Home, start } from './run.ts'

/** How many organizations a loop creates. */
const many = depth(10, 1000)

const create = `'${process.execPath}' '${binary}' orgs create --partner acme --name "Org $n" --slug org-$n -q`

/** A service with these limits and the partner acme, and the home of its administrator. */
async function signedIn(
  place: { dataDir: string; databaseUrl?: string | undefined },
  limits: Record<string, string>,
) {
  const home = new Home({ SVC_CREDENTIAL_STORE: 'file' })
  onTestFinished(() => home.remove())
  const service = new ServeProcess(place, { env: { ...serviceEnv, ...limits } })
  const url = await service.listening()
  const login = ['login', '--url', url, '--email', adminEmail, '--password-stdin']
  expect(await home.run(login, { input: adminPassword })).toMatchObject({ code: 0 })
  await home.run(['partners', 'create', '--name', 'Acme', '--slug', 'acme'])
  const shell = (script: string, longest: number) =>
    start('bash', ['-c', script], home.env, home.path, { longest })
  const slugs = async () => {
    const { stdout } = await home.run(['orgs', '--all', '--columns', 'slug', '--no-header'])
    return stdout.trim().split('\n').sort()
  }
  return { service, shell, slugs }
}

const slugsTo = (count: number) => Array.from({ length: count }, (_, n) => `org-${n + 1}`).sort()
const waits = /^(Rate limited: continuing in \d+ s\n)*$/

it('a plain loop of a shell goes on at the rate limit of its caller, in parallel too', async () => {
  const place = { dataDir: await temporaryFolder() }
  const { service, shell, slugs } = await signedIn(place, { RATE_LIMIT_BEARER: '2/3' })
  const loop = `for n in 1 2 3; do ${create} || exit; done; for n in 4 5 6 7 8; do ${create} & done; wait`
  const { code, stdout, stderr } = await shell(loop, 60_000)
  expect([code, stdout.trim().split('\n').length]).toEqual([0, 8])
  expect(stderr).toMatch(/^(Rate limited: continuing in \d s\n)*$/)
  expect(await slugs()).toEqual(slugsTo(8))
  await service.stop()
})

/** Each `failed` counts: `wait` forgets how a loop in the background ended. */
const loops: Record<string, string> = {
  'one loop': `for n in $(seq ${many}); do ${create} || exit; done`,
  'four loops at once': `for first in 1 2 3 4; do
    (for n in $(seq $first 4 ${many}); do ${create} || echo failed; done) &
  done; wait`,
}

onEveryDatabase((kind, open: Open) => {
  const longest = depth(120_000, 3_600_000)
  const title = `${many} organizations are created on the default limits by %s of a shell`
  const tried = Object.entries(loops).filter((_, index) => takesTurn(kind, index))
  it.each(tried)(title, { timeout: longest + 60_000 }, async (_, loop) => {
    const { service, shell, slugs } = await signedIn(await open(), usualLimits)
    const { code, stdout, stderr } = await shell(loop, longest)
    expect(stderr).toMatch(waits)
    expect([code, stdout.match(/^[0-9a-f-]{36}$/gm)?.length, stdout.includes('failed')]).toEqual([
      0,
      many,
      false,
    ])
    expect(await slugs()).toEqual(slugsTo(many))
    await service.stop()
  })
})
