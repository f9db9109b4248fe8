import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { runInNewContext } from 'node:vm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { makeMsi } from '../../packaging/msi.ts'
import { msiActions } from '../../packaging/msi-actions.ts'
import { msiProblemOf, msiVersion } from '../../packaging/msi-version.ts'
import { temporaryFolder } from '../databases.ts'

const lacks = ['wixl', 'msibuild'].filter((program) => spawnSync(program, ['--version']).error)
if (lacks.length > 0) console.warn(`skipped: an MSI needs ${lacks.join(' and ')}`)

describe('the version of an MSI', () => {
  it('sorts by the three numbers that Windows compares', () => {
    const versions = [
      '0.1.0',
      '0.2.0-alpha',
      '0.2.0-alpha.2',
      '0.2.0-beta.1',
      '0.2.0-rc.1',
      '0.2.0-rc.10',
      '0.2.0',
    ]
    const all = [...versions, '0.2.1-rc.1', '0.2.1', '1.0.0', '255.255.654']
    const numbers = all.map((one) => msiVersion(one).split('.').map(Number))
    const places = numbers.map(([a, b, c]) => (a! * 256 + b!) * 65_536 + c!)
    expect(places).toEqual([...places].sort((a, b) => a - b))
    expect(new Set(places).size).toBe(all.length)
    for (const parts of numbers) {
      expect(parts).toHaveLength(3)
      expect(parts[0]! <= 255 && parts[1]! <= 255 && parts[2]! <= 65_535).toBe(true)
    }
  })

  it.each(['0.2.0-nightly.1', '0.2.0-rc.30', '0.2.0-rc.1.2', '0.2.655', '256.0.0', '0.256.0', '1.0'])(
    'is not made of %s',
    (version) => {
      expect(() => msiVersion(version)).toThrow('An MSI has no version')
      expect(msiProblemOf(version)).toMatch(/--only/)
      expect(msiProblemOf('0.2.0')).toBe(false)
    },
  )
})

describe.skipIf(lacks.length > 0)('the MSI', () => {
  let file: string
  async function made(
    version: string,
    seconds: number,
    agent = 'the agent',
    env: Record<string, string> = {},
  ) {
    const folder = await temporaryFolder()
    const put = (name: string, content: string) => {
      writeFileSync(join(folder, name), content)
      return join(folder, name)
    }
    const files = { 'svc-agent.exe': put('program', agent), 'sbom.cdx.json': put('sbom', '{}') }
    const out = join(folder, 'svc-agent.msi')
    for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value)
    try {
      makeMsi({ version, files, seconds }, join(folder, 'contents'), out)
    } finally {
      vi.unstubAllEnvs()
    }
    return out
  }
  const tell = (...args: string[]) => execFileSync('msiinfo', args, { encoding: 'utf8' })
  /** By the first column, which has the name. */
  const rows = (table: string, of = file): Map<string, string[]> =>
    new Map(
      tell('export', of, table)
        .split('\r\n')
        .slice(3)
        .filter(Boolean)
        .map((line) => line.split('\t'))
        .map(([name, ...rest]) => [name!, rest]),
    )

  beforeAll(async () => {
    file = await made('0.2.0-rc.1', 1_790_000_000)
  })

  it('hides the key, and lets the properties through to the part with elevation', () => {
    const properties = rows('Property')
    expect(properties.get('MsiHiddenProperties')![0]!.split(';')).toEqual(
      expect.arrayContaining(['SVC_ENROLLMENT_KEY', 'InstallAgent', 'CustomActionData']),
    )
    expect(properties.get('SecureCustomProperties')![0]!.split(';')).toEqual(
      expect.arrayContaining(['SVC_URL', 'SVC_ENROLLMENT_KEY', 'SVC_ENROLLMENT_KEY_FILE', 'SVC_PURGE']),
    )
    expect(properties.get('ALLUSERS')).toEqual(['1'])
    expect(properties.get('ProductVersion')).toEqual(['0.2.61'])
  })

  it('enrolls after the files are there, fails where that fails, and undoes it', () => {
    const actions = rows('CustomAction')
    const [asScript, inScript, system, hidden, onRollback, unchecked] = [5, 0x400, 0x800, 0x2000, 0x100, 0x40]
    const deferred = asScript + inScript + system + hidden
    const types = Object.fromEntries([...actions].map(([name, [type]]) => [name, Number(type)]))
    expect(types).toMatchObject({
      InstallAgent: deferred,
      UninstallAgent: deferred + unchecked,
      UndoInstallAgent: deferred + onRollback + unchecked,
      RestoreAgent: deferred + onRollback + unchecked,
      SetInstallAgent: 51,
    })
    // No action has the key in its command: it is in the data of one.
    for (const [name, [, , target]] of actions)
      expect([name, target!.includes('SVC_ENROLLMENT_KEY]')]).toEqual([name, name === 'SetInstallAgent'])
    const sequence = rows('InstallExecuteSequence')
    const order = [...sequence].sort(([, a], [, b]) => Number(a[1]) - Number(b[1])).map(([name]) => name)
    const wanted = [
      'FindRelatedProducts',
      'LaunchConditions',
      'InstallInitialize',
      'RemoveExistingProducts',
      'SetRestoreAgent',
      'RestoreAgent',
      'UninstallAgent',
      'RemoveFiles',
      'InstallFiles',
      'UndoInstallAgent',
      'InstallAgent',
      'InstallFinalize',
    ]
    expect(order.filter((name) => wanted.includes(name))).toEqual(wanted)
    expect(sequence.get('InstallAgent')![0]).toBe('NOT (REMOVE="ALL")')
    expect(sequence.get('UninstallAgent')![0]).toBe('REMOVE="ALL"')
    for (const name of ['InstallAgent', 'UninstallAgent', 'UndoInstallAgent', 'RestoreAgent'])
      expect(order.indexOf(`Set${name}`)).toBeLessThan(order.indexOf(name))
  })

  it('replaces older versions and the same one, and no newer one', () => {
    const found = tell('export', file, 'Upgrade').split('\r\n').slice(3).filter(Boolean)
    expect(found.map((line) => line.split('\t')).sort()).toEqual([
      ['{6F1D3C0A-7F0E-4C5B-9D2E-5B8F0C4A91E7}', '0.0.0', '0.2.61', '', '768', '', 'OLDERFOUND'],
      ['{6F1D3C0A-7F0E-4C5B-9D2E-5B8F0C4A91E7}', '0.2.61', '', '', '2', '', 'NEWERFOUND'],
    ])
    expect([...rows('LaunchCondition').keys()]).toContain('NOT NEWERFOUND')
    expect(rows('Property').get('UpgradeCode')![0]!.toUpperCase()).toBe(found[0]!.split('\t')[0])
  })

  it('has its files in Program Files of 64 bits', () => {
    expect([...rows('File').values()].map(([, name]) => name).sort()).toEqual([
      'sbom.cdx.json',
      'svc-agent.exe',
    ])
    expect(rows('Directory').get('ProgramFolder')).toEqual(['ProgramFiles64Folder', 'svc-agent'])
    expect(tell('suminfo', file)).toContain('Template: x64;1033')
    for (const [, [, , attributes]] of rows('Component')) expect(Number(attributes)).toBe(256)
  })

  it('is the same when it is made again, elsewhere and in another time zone', async () => {
    await new Promise((resolve) => setTimeout(resolve, 1100))
    const again = await made('0.2.0-rc.1', 1_790_000_000, 'the agent', { TZ: 'Asia/Tokyo', LC_ALL: 'C' })
    expect(readFileSync(again).equals(readFileSync(file))).toBe(true)
    expect(tell('suminfo', again)).toMatch(/Created: Mon Sep 21 \d\d:13:20 2026/)
  })

  it('is another product with other contents: Windows refuses two packages of one product', async () => {
    const others = [
      await made('0.2.0-rc.1', 1_790_000_000, 'another agent'),
      await made('0.2.0-rc.2', 1_790_000_000),
    ]
    const codes = [file, ...others].map((one) => [
      rows('Property', one).get('ProductCode')![0],
      /Revision number \(UUID\): (\{[0-9A-F-]{36}\})/.exec(tell('suminfo', one))![1],
    ])
    expect(new Set(codes.flat()).size).toBe(6)
  })
})

describe('what the MSI runs', () => {
  const data = 'C:\\Program Files\\svc-agent\\|https://svc.example.com|f00d|'

  /** JScript of Windows sets what has a parameter by an assignment, which this language does not know. */
  const script = msiActions.replace(/([\w.]+)\(([^()]*)\) = ([^;]*);/g, '$1($2, $3);')

  function windows(given: string, ended: { code?: number; said?: string; fails?: string } = {}) {
    const variables: Record<string, string> = {}
    const seen: { command: string; variables: Record<string, string> }[] = []
    const log: [number, string][] = []
    const place = { PROCESS: variables, SYSTEM: { SVC_CA_FILE: 'C:\\ca.pem' } as Record<string, string> }
    class Shell {
      Environment(name: 'PROCESS' | 'SYSTEM') {
        const item = (key: string, value?: string) => {
          if (value !== undefined) place[name][key] = value
          return place[name][key] ?? ''
        }
        return Object.assign(item, { Item: item, Remove: (key: string) => delete place[name][key] })
      }
      Exec(command: string) {
        if (ended.fails !== undefined) throw new Error(ended.fails)
        seen.push({ command, variables: { ...variables } })
        const stream = { Close() {}, ReadAll: () => ended.said ?? '' }
        return { StdIn: stream, StdErr: stream, StdOut: stream, Status: 1, ExitCode: ended.code ?? 0 }
      }
    }
    const record = () => {
      const parts: Record<number, string> = {}
      return { parts, StringData: (n: number, text: string) => (parts[n] = text) }
    }
    const Session = {
      Property: () => given,
      Installer: { CreateRecord: record },
      Message: (kind: number, { parts }: ReturnType<typeof record>) => log.push([kind, parts[1]!]),
    }
    const call = (name: string): number =>
      runInNewContext(`${script}\n${name}()`, { ActiveXObject: Shell, Session })
    return { call, seen, log, variables }
  }

  it('hands on address and key by the environment, and forgets the key', () => {
    const { call, seen, variables } = windows(data)
    expect(call('InstallAgent')).toBe(1)
    expect(seen).toEqual([
      {
        command: '"C:\\Program Files\\svc-agent\\svc-agent.exe" install --yes --no-input',
        variables: {
          SVC_URL: 'https://svc.example.com',
          SVC_ENROLLMENT_KEY: 'f00d',
          SVC_CA_FILE: 'C:\\ca.pem',
        },
      },
    ])
    expect(variables).not.toHaveProperty('SVC_ENROLLMENT_KEY')
  })

  it('names a file with the key where one is given', () => {
    const { call, seen } = windows('C:\\x\\|https://svc.example.com||C:\\a folder\\key.txt')
    call('InstallAgent')
    expect(seen[0]!.command).toContain(' --enrollment-key "@C:\\a folder\\key.txt"')
  })

  it('fails with what the program says, in the log', () => {
    const said =
      'Done: create C:\\ProgramData\\svc-agent\r\nError: Cannot enroll: the key has expired\r\nHint: make another one'
    const { call, log, variables } = windows(data, { code: 3, said })
    expect(call('InstallAgent')).toBe(3)
    expect(log.at(-1)).toEqual([
      0x01000000,
      'Error: Cannot enroll: the key has expired\r\nHint: make another one',
    ])
    expect(variables).not.toHaveProperty('SVC_ENROLLMENT_KEY')
    const blocked = windows(data, { fails: 'blocked by policy' })
    expect(blocked.call('InstallAgent')).toBe(3)
    expect(blocked.log).toEqual([[0x01000000, 'svc-agent.exe cannot be run: blocked by policy']])
  })

  it('leaves the state when it removes the agent, unless told otherwise', () => {
    const [left, purged] = [windows('C:\\x\\|'), windows('C:\\x\\|1')]
    expect([left.call('UninstallAgent'), purged.call('UninstallAgent')]).toEqual([1, 1])
    expect(left.seen[0]!.command).toBe('"C:\\x\\svc-agent.exe" uninstall --yes --no-input')
    expect(purged.seen[0]!.command).toBe('"C:\\x\\svc-agent.exe" uninstall --yes --no-input --purge')
  })
})
