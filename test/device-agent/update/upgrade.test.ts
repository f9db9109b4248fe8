import { execFileSync } from 'node:child_process'
import { hash } from 'node:crypto'
import { chmodSync, chownSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { isSoak } from '../../depth.ts'
import { beginningWith, builds, type Machine, machine, processesUnder } from './machine.ts'
import { fileAnswer, infoOf, publisher, type ReleaseHost, releaseHost } from './releases.ts'

// Most of the time the tests wait.
vi.setConfig({ testTimeout: 180_000, maxConcurrency: 4 })
const build = builds()
const patience = { timeout: 90_000, interval: 100 }
const until = (check: () => void) => vi.waitFor(check, patience)
const isRoot = process.getuid?.() === 0
/** `npm test` covers each kind of update once, the soak all of them. */
const inDepth = test.runIf(isSoak)

/** Broken one-file programs, with the reason that is reported for each. */
const broken: [what: string, content: string | Buffer, reason: RegExp][] = [
  ['ends at once', '#!/bin/sh\nexit 3\n', /^exit code 3 before its first heartbeat$/],
  ['is ended by a signal', '#!/bin/sh\nkill -SEGV $$\n', /^SIGSEGV before its first heartbeat$/],
  ['hangs', '#!/bin/sh\nexec sleep 1000\n', /^no heartbeat within 2 s$/],
  [
    'hangs, with children, and ignores signals',
    `#!/bin/sh\ntrap '' TERM\nsh -c 'trap "" TERM; while :; do sleep 1; done' "$0" &\nwhile :; do sleep 1; done\n`,
    /^no heartbeat within 2 s$/,
  ],
  ['has no interpreter', '#!/nonexistent/interpreter\n', /^it cannot be started: ENOENT$/],
]

/** The agent reports with this version, from its original file. */
async function keepsRunning(agent: Machine, host: ReleaseHost, version = '1.0.0'): Promise<void> {
  const before = host.count('/heartbeat')
  await until(() => expect(host.count('/heartbeat')).toBeGreaterThan(before + 1))
  expect(host.lastVersion()).toBe(version)
  expect(agent.installed().equals(readFileSync(build(version)))).toBe(true)
}

describe.concurrent('an agent that is offered another version', () => {
  test('updates in the same process and reports it; an older one is accepted as a rollback', async () => {
    await using host = await releaseHost({
      files: { '1.0.0': build('1.0.0'), '2.0.0': build('2.0.0') },
      target: '2.0.0',
    })
    await using agent = machine(build('1.0.0'), host.url)
    const pid = agent.pid()
    await until(() => expect(agent.states()).toContain('installed'))
    await keepsRunning(agent, host, '2.0.0')
    expect(host.statuses()).toEqual([{ targetVersion: '2.0.0', state: 'updating' }])
    expect(agent.alive()).toMatchObject({ version: '2.0.0', heartbeats: expect.any(Number) })
    const { pending, backup } = agent.journal()
    expect(pending).toBeUndefined()
    expect(backup).toMatchObject({ version: '1.0.0', spent: false })
    const kept = readFileSync(join(agent.stateDir, 'svc-agent.backup'))
    expect(hash('sha256', kept, 'hex')).toBe(backup.sha256)
    host.hosting.target = '1.0.0'
    host.hosting.rollback = true
    await until(() => expect(agent.states().filter((state) => state === 'installed')).toHaveLength(2))
    await keepsRunning(agent, host, '1.0.0')
    expect([agent.starts(), agent.pid()]).toEqual([1, pid])
    expect(await agent.terminate()).toBe(0)
    expect(processesUnder(agent.home)).toEqual([])
  })

  inDepth('refuses an older one that is not marked as a rollback, with the reason', async () => {
    await using host = await releaseHost({
      files: { '1.0.0': build('1.0.0'), '2.0.0': build('2.0.0') },
      target: '1.0.0',
    })
    await using agent = machine(build('2.0.0'), host.url)
    await until(() => expect(host.statuses().at(-1)?.state).toBe('refused'))
    const reason = 'it is older than 2.0.0, and was not offered as a roll-back'
    expect(host.statuses()).toEqual([{ targetVersion: '1.0.0', state: 'refused', reason }])
    await keepsRunning(agent, host, '2.0.0')
    expect(agent.events().filter(({ event }) => event === 'update')).toEqual([
      { event: 'update', state: 'refused', version: '1.0.0', reason },
    ])
    expect(host.count('/download')).toBe(0)
  })

  test('refuses a rollback below its minimum version, with the reason', async () => {
    const by = publisher()
    const floor = { minimumVersion: '1.5.0' }
    await using host = await releaseHost({
      files: { '1.0.0': build('1.0.0'), '1.5.0': build('1.5.0'), '2.0.0': build('2.0.0') },
      by,
      target: '2.0.0',
      rollback: true,
      info: (version, content) =>
        infoOf(by, version, content, { manifest: version === '2.0.0' ? floor : {} }),
    })
    await using agent = machine(build('1.5.0'), host.url)
    await until(() => expect(agent.states()).toContain('installed'))
    host.hosting.target = '1.0.0'
    await until(() => expect(host.statuses().at(-1)?.state).toBe('refused'))
    const reason = 'it is below 1.5.0, the lowest version that a signed release allows'
    expect(host.statuses().at(-1)).toEqual({ targetVersion: '1.0.0', state: 'refused', reason })
    expect(agent.events().at(-1)).not.toMatchObject({ state: 'downloading' })
    await keepsRunning(agent, host, '2.0.0')
    host.hosting.target = '1.5.0'
    await until(() => expect(agent.states().filter((state) => state === 'installed')).toHaveLength(2))
    await keepsRunning(agent, host, '1.5.0')
  })

  test.each(isSoak ? broken : broken.filter(([what]) => /children|interpreter/.test(what)))(
    'that %s keeps its version',
    async (_, content, reason) => {
      await using host = await releaseHost({ files: { '2.0.0': Buffer.from(content) }, target: '2.0.0' })
      await using agent = machine(build('1.0.0'), host.url, { settings: { trialSeconds: 2 } })
      await until(() => expect(host.statuses().at(-1)?.state).toBe('rolled_back'))
      expect(host.statuses().at(-1)).toEqual({
        targetVersion: '2.0.0',
        state: 'rolled_back',
        reason: expect.stringMatching(reason),
      })
      await keepsRunning(agent, host)
      expect(agent.states().filter((state) => state === 'trying')).toHaveLength(1)
      expect(processesUnder(agent.file.replace(/svc-agent$/, 'next-'))).toEqual([])
      expect(existsSync(join(dirname(agent.file), 'next-svc-agent'))).toBe(false)
    },
  )

  test('that reports yet another version keeps its version', async () => {
    await using host = await releaseHost({ files: { '2.0.0': build('2.0.1') }, target: '2.0.0' })
    await using agent = machine(build('1.0.0'), host.url)
    await until(() => expect(host.statuses().at(-1)).toMatchObject({ reason: 'it reports version 2.0.1' }))
    await keepsRunning(agent, host)
  })

  test('that keeps crashing once installed restores the previous one, and does not retry', async () => {
    const crashing = beginningWith(
      build('2.0.0'),
      `if (process.env.SVC_AGENT_PART === 'agent') setTimeout(() => process.exit(9), 300)`,
    )
    await using host = await releaseHost({ files: { '2.0.0': crashing }, target: '2.0.0' })
    await using agent = machine(build('1.0.0'), host.url)
    await until(() => expect(host.statuses().at(-1)?.state).toBe('rolled_back'))
    expect(host.statuses().at(-1)).toMatchObject({
      targetVersion: '2.0.0',
      reason: 'it ended three times (exit code 9)',
    })
    await keepsRunning(agent, host)
    expect(agent.journal()).toMatchObject({ backup: { spent: true }, failed: { '2.0.0': {} } })
    expect(agent.events().filter(({ event }) => event === 'restart').length).toBe(2)
    expect(agent.starts()).toBe(1)
  })

  inDepth('updates even with wildly wrong clocks, and restarts nothing', async () => {
    const wrongClock = `
      const Right = Date; let turn = 0;
      const now = () => Right.now() + [0, 4e11, -4e11, 1e9][turn++ % 4];
      globalThis.Date = class extends Right { constructor(...args) { super(...(args.length ? args : [now()])) } static now() { return now() } };`
    await using host = await releaseHost({
      files: { '2.0.0': beginningWith(build('2.0.0'), wrongClock) },
      target: '2.0.0',
    })
    await using agent = machine(beginningWith(build('1.0.0'), wrongClock), host.url, {
      settings: { silenceSeconds: 20 },
    })
    await until(() => expect(agent.states()).toContain('installed'))
    const before = host.count('/heartbeat')
    await until(() => expect(host.count('/heartbeat')).toBeGreaterThan(before + 6))
    expect(agent.events().filter(({ event }) => event === 'restart')).toEqual([])
  })
})

describe.concurrent('an untrustworthy offer is refused', () => {
  const stranger = publisher()
  const by = publisher()
  const other = { assets: [{ name: 'svc-agent-plan9-mips', sha256: 'a'.repeat(64), size: 1 }] }
  type Describe = (version: string, content: Buffer) => ReturnType<typeof infoOf>
  const offers: [what: string, reason: RegExp, info: Describe | undefined][] = [
    [
      'signed by a stranger',
      /invalid_release_manifest_signature/,
      (v: string, c: Buffer) => infoOf(stranger, v, c),
    ],
    [
      'changed after it was signed',
      /invalid_release_manifest_signature/,
      (v: string, c: Buffer) => {
        const info = infoOf(by, v, c)
        return { ...info, manifest: info.manifest.replace('v2.0.0', 'v2.0.0 ') }
      },
    ],
    [
      'of another version',
      /the manifest describes v?1\.9\.0/,
      (_: string, c: Buffer) => ({ ...infoOf(by, '1.9.0', c), version: '2.0.0' }),
    ],
    ['for other platforms', /no agent for/, (v: string, c: Buffer) => infoOf(by, v, c, { manifest: other })],
    [
      'with another checksum than was signed',
      /the file differs from the manifest/,
      (v: string, c: Buffer) => ({ ...infoOf(by, v, c), checksum: 'b'.repeat(64) }),
    ],
    [
      'with another file than was signed',
      /checksum is not the one that was signed/,
      (v: string, c: Buffer) => infoOf(by, v, Buffer.from(c).fill('x', 0, 9)),
    ],
    [
      'that skips a required version',
      /needs 1\.5\.0 first/,
      (v: string, c: Buffer) => infoOf(by, v, c, { manifest: { minFrom: '1.5.0' } }),
    ],
    [
      'without TLS, from another host',
      /without TLS/,
      (v: string, c: Buffer) => infoOf(by, v, c, { url: 'http://192.0.2.1/file' }),
    ],
    ['for another processor', /not a program for/, undefined],
  ]
  test.each(isSoak ? offers : offers.filter(([what]) => /stranger|another file/.test(what)))(
    '%s',
    async (_, reason, info) => {
      const foreign = Buffer.from(execFileSync('head', ['-c', '4096', process.execPath]))
      foreign.writeUInt16LE(0x16, 18)
      const content = info ? build('2.0.0') : foreign
      await using host = await releaseHost({
        files: { '2.0.0': content },
        target: '2.0.0',
        by,
        ...(info && { info }),
      })
      await using agent = machine(build('1.0.0'), host.url)
      await until(() => expect(host.statuses().at(-1)?.state).toBe('refused'))
      expect(host.statuses().at(-1)!.reason).toMatch(reason)
      await keepsRunning(agent, host)
      expect(agent.states().filter((state) => state === 'refused')).toHaveLength(1)
      expect(agent.states()).not.toContain('trying')
    },
  )

  test('signed with a key that the operator did not configure, whatever the service names', async () => {
    await using host = await releaseHost({ files: { '2.0.0': build('2.0.0') }, target: '2.0.0', by })
    await using agent = machine(build('1.0.0'), host.url, {
      args: ['--trust-key', stranger.trustKey.publicKeyB64],
    })
    await until(() => expect(host.statuses().at(-1)?.state).toBe('refused'))
    await keepsRunning(agent, host)
  })
})

describe.concurrent('a download', () => {
  test('that breaks off resumes where it ended', async () => {
    const content = readFileSync(build('2.0.0'))
    const half = Math.floor(content.length / 2)
    let asked = 0
    await using host = await releaseHost({
      files: { '2.0.0': content },
      target: '2.0.0',
      answer: (request) => {
        if (!request.path.startsWith('/files/')) return undefined
        asked += 1
        return asked === 1 ? { status: 200, bytes: content, cutAfter: half } : fileAnswer(content, request)
      },
    })
    await using agent = machine(build('1.0.0'), host.url)
    await until(() => expect(agent.states()).toContain('installed'))
    const ranges = host.received
      .filter(({ path }) => path.startsWith('/files/'))
      .map(({ headers }) => headers.range)
    expect(ranges[0]).toBeUndefined()
    expect(Number(/^bytes=(\d+)-$/.exec(ranges[1]!)![1])).toBeGreaterThan(0)
  })

  inDepth('over the file size limit fails, leaves nothing behind, and the agent continues', async () => {
    await using host = await releaseHost({ files: { '2.0.0': build('2.0.0') }, target: '2.0.0' })
    // Blocks of 512 bytes.
    await using agent = machine(build('1.0.0'), host.url, { shell: 'ulimit -f 800;' })
    await until(() => expect(host.statuses().at(-1)?.state).toBe('failed'))
    expect(host.statuses().at(-1)!.reason).toMatch(/EFBIG/)
    await keepsRunning(agent, host)
    expect(execFileSync('ls', [dirname(agent.file)], { encoding: 'utf8' })).toBe('svc-agent\n')
  })

  test.skipIf(!isRoot)(
    'onto a full disk fails, and the agent continues; it succeeds once there is space',
    async () => {
      await using host = await releaseHost({ files: { '2.0.0': build('2.0.0') } })
      await using agent = machine(build('1.0.0'), host.url)
      await until(() => expect(host.lastVersion()).toBe('1.0.0'))
      await agent.terminate()
      const script = `mount -t tmpfs -o size=3m tmpfs "${agent.home}/full" && cp "${agent.file}" "${agent.home}/full/svc-agent"`
      execFileSync('sh', [
        '-c',
        `mkdir "${agent.home}/full" && ${script} && mkdir -m 700 "${agent.home}/full/state"`,
      ])
      try {
        host.hosting.target = '2.0.0'
        await using small = machine(build('1.0.0'), host.url, {
          at: { file: `${agent.home}/full/svc-agent`, stateDir: `${agent.home}/full/state` },
        })
        await until(() => expect(host.statuses().at(-1)?.reason).toMatch(/not enough space/))
        await keepsRunning(small, host)
        execFileSync('mount', ['-o', 'remount,size=100m', `${agent.home}/full`])
        writeFileSync(join(small.stateDir, 'update.json'), '{}')
        await until(() => expect(small.states()).toContain('installed'))
      } finally {
        execFileSync('umount', ['-l', `${agent.home}/full`])
      }
    },
  )
})

inDepth.concurrent('an agent that crashes on every offer gives up after five, and continues', async () => {
  // The process ends when the download begins.
  const dying = `
    const open = process.getBuiltinModule('fs').promises.open;
    process.getBuiltinModule('fs').promises.open = (path, ...rest) => String(path).endsWith('.part') ? process.exit(9) : open(path, ...rest);
    process.getBuiltinModule('module').syncBuiltinESMExports();
    const later = setTimeout; globalThis.setTimeout = (run, ms, ...rest) => later(run, Math.min(ms ?? 0, 1000), ...rest);`
  await using host = await releaseHost({ files: { '2.0.0': build('2.0.0') }, target: '2.0.0' })
  await using agent = machine(beginningWith(build('1.0.0'), dying), host.url)
  await until(() => expect(host.statuses().at(-1)?.state).toBe('failed'))
  expect(host.statuses().map(({ state }) => state)).toEqual([...Array(5).fill('updating'), 'failed'])
  expect(host.statuses().at(-1)!.reason).toBe('it failed 5 times')
  const restarts = agent.events().filter(({ event }) => event === 'restart').length
  const before = host.count('/heartbeat')
  await until(() => expect(host.count('/heartbeat')).toBeGreaterThan(before + 2))
  expect(agent.events().filter(({ event }) => event === 'restart').length).toBe(restarts)
})

describe.concurrent('an agent that takes no updates', () => {
  test('reports it, with the reason: its directory cannot be written to', async () => {
    await using host = await releaseHost({ files: { '2.0.0': build('2.0.0') }, target: '2.0.0' })
    // Root may write anywhere.
    const uid = isRoot ? 65_534 : undefined
    await using agent = machine(build('1.0.0'), host.url, {
      ...(uid !== undefined && { uid }),
      prepare: ({ file, stateDir }) => {
        chmodSync(dirname(file), 0o555)
        if (uid !== undefined) chownSync(stateDir, uid, uid)
      },
    })
    await until(() => expect(host.count('/heartbeat')).toBeGreaterThan(2))
    const beats = host.received.filter(({ path }) => path.endsWith('/heartbeat'))
    expect(beats.map(({ body }) => body.autoUpdate)).toEqual(beats.map(() => false))
    const off = agent.events().filter(({ event }) => event === 'update')
    expect(off).toEqual([
      {
        event: 'update',
        state: 'off',
        version: '1.0.0',
        reason: expect.stringContaining('cannot be written to (EACCES)'),
      },
    ])
    chmodSync(dirname(agent.file), 0o755)
  })

  inDepth('was configured by a command, which lasts across a restart', async () => {
    await using host = await releaseHost({ files: { '2.0.0': build('2.0.0') }, target: '2.0.0' })
    host.hosting.answer = ({ path, body }) =>
      path.endsWith('/heartbeat') && body.autoUpdate === true
        ? {
            status: 200,
            body: {
              commands: [{ id: '1', type: 'set_auto_update', payload: { enabled: false } }],
              configUpdate: null,
              upgradeTo: null,
              rotateToken: false,
              manifestTrustKeys: [],
            },
          }
        : path.endsWith('/heartbeat')
          ? { status: 200, body: { upgradeTo: '2.0.0' } }
          : undefined
    await using agent = machine(build('1.0.0'), host.url)
    const said = () =>
      host.received.filter(({ path }) => path.endsWith('/heartbeat')).map(({ body }) => body.autoUpdate)
    await until(() => expect(said()).toContain(false))
    await until(() => expect(host.count('/commands/1/result')).toBe(1))
    await agent.terminate()
    expect(JSON.parse(readFileSync(join(agent.stateDir, 'config.json'), 'utf8'))).toEqual({
      autoUpdate: false,
    })
    const before = said().length
    agent.start()
    await until(() => expect(said().length).toBeGreaterThan(before + 1))
    expect(new Set(said().slice(before))).toEqual(new Set([false]))
    expect(agent.states()).toEqual([])
  })
})

inDepth.concurrent(
  'a binary that cannot be installed now is installed later, without another trial',
  async ({ skip }) => {
    await using host = await releaseHost({ files: { '2.0.0': build('2.0.0') }, target: undefined })
    await using agent = machine(build('1.0.0'), host.url)
    await until(() => expect(host.lastVersion()).toBe('1.0.0'))
    try {
      execFileSync('chattr', ['+i', agent.file], { stdio: 'ignore' })
    } catch {
      skip('only root can make a file immutable, on a file system that knows how')
    }
    host.hosting.target = '2.0.0'
    try {
      await until(() =>
        expect(agent.states().filter((state) => state === 'failed').length).toBeGreaterThan(1),
      )
      expect(agent.states().filter((state) => state === 'trying')).toHaveLength(1)
      expect(agent.events().find(({ state }) => state === 'failed')!.reason).toMatch(/EPERM/)
      expect(host.lastVersion()).toBe('1.0.0')
    } finally {
      execFileSync('chattr', ['-i', agent.file])
    }
    await until(() => expect(agent.states()).toContain('installed'))
    expect(agent.states().filter((state) => state === 'trying')).toHaveLength(1)
    expect(host.statuses().filter(({ state }) => state !== 'updating')).toEqual([])
    expect(statSync(agent.file).mode & 0o777).toBe(0o755)
  },
)
