import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { identityStore, prepareStateDir, stateDirFrom } from '../../src/device-agent/state.ts'
import { identityAt } from './stand-in.ts'

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'svc-agent-'))
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

const identity = identityAt('http://127.0.0.1:3000')
const modeOf = (path: string): number => statSync(path).mode & 0o777

test('the identity is loaded as it was saved, from a file only its owner can read', () => {
  const dir = join(root, 'deep', 'state')
  prepareStateDir(dir)
  const store = identityStore(dir)
  expect(store.load()).toBeUndefined()
  store.save(identity)
  expect(store.load()).toEqual(identity)
  expect(modeOf(store.file)).toBe(0o600)
  expect(modeOf(dir)).toBe(0o700)
})

test('saving again replaces the file and leaves no draft, even after a crash during a save', () => {
  const store = identityStore(root)
  writeFileSync(`${store.file}.new`, '{"half":', { mode: 0o644 })
  store.save(identity)
  store.save({ ...identity, heartbeatIntervalSeconds: 30 })
  expect(store.load()?.heartbeatIntervalSeconds).toBe(30)
  expect(modeOf(store.file)).toBe(0o600)
  expect(readdirSync(root)).toEqual(['identity.json'])
})

test.each([0o604, 0o640, 0o660, 0o644])('a file with mode %o is refused with the remedy', (mode) => {
  const store = identityStore(root)
  store.save(identity)
  chmodSync(store.file, mode)
  expect(() => store.load()).toThrow(`chmod 600 ${store.file}`)
  chmodSync(store.file, 0o600)
  expect(store.load()).toEqual(identity)
})

test.each(['', '{', '{}', JSON.stringify({ ...identity, authToken: '' })])(
  '%j is not accepted as an identity',
  (text) => {
    const store = identityStore(root)
    writeFileSync(store.file, text, { mode: 0o600 })
    expect(() => store.load()).toThrow('is not an agent identity')
  },
)

test('a state directory that cannot be created is an error that names it', () => {
  writeFileSync(join(root, 'file'), '')
  expect(() => prepareStateDir(join(root, 'file', 'state'))).toThrow(join(root, 'file', 'state'))
})

test('a state directory that others can write to is refused with the remedy', () => {
  const dir = join(root, 'shared')
  prepareStateDir(dir)
  for (const mode of [0o777, 0o720, 0o702]) {
    chmodSync(dir, mode)
    expect(() => prepareStateDir(dir)).toThrow(`chmod 700 ${dir}`)
  }
  chmodSync(dir, 0o755)
  prepareStateDir(dir)
})

test('the default state directory is that of the system for root, otherwise that of the user', () => {
  expect(stateDirFrom({}, 0)).toBe('/var/lib/svc-agent')
  expect(stateDirFrom({ SVC_AGENT_STATE_DIR: '/srv/agent' }, 0)).toBe('/srv/agent')
  expect(stateDirFrom({ XDG_STATE_HOME: '/home/ann/state' }, 1000)).toBe('/home/ann/state/svc-agent')
  expect(stateDirFrom({}, 1000)).toMatch(/\.local\/state\/svc-agent$/)
})
