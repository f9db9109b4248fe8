import { readdir, readFile } from 'node:fs/promises'
import { expect, it } from 'vitest'
import { verifyPassword } from '../../src/identity/password-guard/verify.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import { ServeProcess } from '../daemon/process.ts'
import { temporaryFolder } from '../databases.ts'

it('password verification survives malformed hashes and any number of concurrent calls', async () => {
  const hashed = await hashPassword('the right one')
  expect(hashed).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/)
  const broken = Array.from({ length: 9 }, () => verifyPassword('no hash', 'x').catch(() => 'broken'))
  const asked = ['the right one', 'a wrong one', 'the right one', 'another'].map((password) =>
    verifyPassword(hashed, password),
  )
  expect(await Promise.all(broken)).toEqual(Array(9).fill('broken'))
  expect(await Promise.all(asked)).toEqual([true, false, true, false])
  expect(await verifyPassword(null, 'the right one')).toBe(false)
})

// Otherwise, writes that must be on disk before a response would wait behind all sign-ins.
it.skipIf(process.platform !== 'linux')('password hashing leaves threads free for disk I/O', async () => {
  const service = new ServeProcess({ dataDir: await temporaryFolder() })
  await service.listening()
  const tasks = `/proc/${service.pid}/task`
  const names = await Promise.all(
    (await readdir(tasks)).map((task) => readFile(`${tasks}/${task}/comm`, 'utf8')),
  )
  expect(names.filter((name) => name.startsWith('libuv-worker'))).toHaveLength(16)
})
