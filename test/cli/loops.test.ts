import { afterAll, expect, it } from 'vitest'
import { ServeProcess, told } from '../daemon/process.ts'
import { temporaryFolder } from '../databases.ts'
import { adminEmail, adminPassword } from '../harness.ts'
import { binary, Home, start } from './run.ts'

const home = new Home({ SVC_CREDENTIAL_STORE: 'file' })
afterAll(() => home.remove())

it('a plain loop of a shell goes on at the rate limit of its caller, in parallel too', async () => {
  const env = { ...told, RATE_LIMIT_BEARER: '2/3' }
  const service = new ServeProcess({ dataDir: await temporaryFolder() }, { env })
  const url = await service.listening()
  const login = ['login', '--url', url, '--email', adminEmail, '--password-stdin']
  expect(await home.run(login, { input: adminPassword })).toMatchObject({ code: 0 })
  await home.run(['partners', 'create', '--name', 'Acme', '--slug', 'acme'])
  const create = `'${process.execPath}' '${binary}' orgs create --partner acme --name "Org $n" --slug org-$n -q`
  const loop = `for n in 1 2 3; do ${create} || exit; done; for n in 4 5 6 7 8; do ${create} & done; wait`
  const { code, stdout, stderr } = await start('bash', ['-c', loop], home.env, home.path, { longest: 60_000 })
  expect([code, stdout.trim().split('\n').length]).toEqual([0, 8])
  expect(stderr).toMatch(/^(Rate limited: continuing in \d s\n)*$/)
  const all = await home.run(['orgs', '-q'])
  expect(all.stdout.trim().split('\n').length).toBe(8)
  await service.stop()
}, 90_000)
