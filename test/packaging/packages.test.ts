import { execFile, execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, globSync, linkSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { debian, rpm } from '../../packaging/scripts.ts'
import { packageVersion } from '../../packaging/versions.ts'
import { isSoak } from '../depth.ts'
import { freePort } from '../postgres.ts'

/*
 * The packages of Debian and RPM. The soak makes them, and installs, uses, upgrades and purges those of Debian in an empty Debian.
 * No systemd runs where the tests run: what the unit does is done by svc-admin.
 */

const root = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)
const has = (program: string) => !spawnSync(program, ['--version']).error
const lacking = (...programs: string[]) => {
  const missing = programs.filter((program) => !has(program))
  if (process.getuid?.() !== 0) missing.push('root')
  if (missing.length > 0) console.warn(`skipped: packages need ${missing.join(', ')}`)
  return missing
}

/** Debian's rules: the older version first. */
const ascending = [
  '0.1.0-alpha',
  '0.1.0-rc.1',
  '0.1.0-rc.2',
  '0.1.0-rc.10',
  '0.1.0',
  '0.1.1-rc-1',
  '0.1.1',
  '0.10.0',
]
const pairs = ascending.slice(1).map((version, n) => [ascending[n]!, version] as const)

describe('the version of a package', () => {
  it('is that of the release, with a candidate before it', () => {
    expect(packageVersion('0.2.0-rc.1')).toBe('0.2.0~rc.1')
    expect(packageVersion('1.2.3')).toBe('1.2.3')
    expect(packageVersion('1.2.3-rc-1')).toBe('1.2.3~rc.1')
  })

  it.skipIf(!has('dpkg'))('sorts as dpkg sorts', () => {
    for (const [older, newer] of pairs) {
      const args = [`${packageVersion(older)}-1`, 'lt', `${packageVersion(newer)}-1`]
      expect(spawnSync('dpkg', ['--compare-versions', ...args]).status, args.join(' ')).toBe(0)
    }
  })

  it.skipIf(!has('rpm'))('sorts as rpm sorts', () => {
    for (const [older, newer] of pairs) {
      const call = `%{lua: print(rpm.vercmp("${packageVersion(older)}", "${packageVersion(newer)}"))}`
      expect(execFileSync('rpm', ['--eval', call], { encoding: 'utf8' }).trim(), call).toBe('-1')
    }
  })
})

describe('a script of a package', () => {
  const scripts = Object.entries(debian).flatMap(([name, parts]) =>
    Object.entries(parts).map(([part, text]) => [`${name} ${part}`, text] as const),
  )
  const sections = Object.entries(rpm).flatMap(([name, text]) =>
    text.split(/^(?=%\w+\n)/m).map((part) => {
      const [title, ...lines] = part.split('\n')
      return [`${name} ${title}`, lines.join('\n')] as const
    }),
  )
  it.each([...scripts, ...sections])('%s is one that sh takes', (_, text) => {
    expect(text).not.toMatch(/undefined|\[object/)
    const { status, stderr } = spawnSync('sh', ['-n'], { input: text, encoding: 'utf8' })
    expect([status, stderr]).toEqual([0, ''])
  })
})

if (isSoak) describe('the packages', made)

function made(): void {
  const missing = lacking('dpkg-deb')
  let folder: string
  const build = (out: string, ...args: string[]) =>
    run(process.execPath, [join(root, 'packaging/build-packages.ts'), '--out', out, '--quick', ...args], {
      cwd: root,
    })
  const one = (pattern: string): string =>
    globSync(pattern, { cwd: folder }).map((file) => join(folder, file))[0]!

  beforeAll(async () => {
    if (missing.length > 0) return
    // Not in the memory of the machine: they are large.
    folder = await mkdtemp(join(tmpdir(), 'svc-packages-'))
    await run(process.execPath, [join(root, 'build-man.js')], { cwd: root })
    await build(join(folder, 'new'), '--format', 'deb')
    await build(join(folder, 'old'), '--format', 'deb', '--name', 'svc', '--version', '0.0.9-rc.1')
    return () => rmSync(folder, { recursive: true, force: true })
  }, 600_000)

  it.skipIf(missing.length > 0)(
    'have the same bytes when they are built again',
    { timeout: 300_000 },
    async () => {
      const SOURCE_DATE_EPOCH = execFileSync('git', ['log', '-1', '--format=%ct'], {
        cwd: root,
        encoding: 'utf8',
      })
      const again = await mkdtemp(join(tmpdir(), 'svc-packages-'))
      onTestFinished(() => rmSync(again, { recursive: true, force: true }))
      const args = [
        'packaging/build-packages.ts',
        '--out',
        again,
        '--quick',
        '--format',
        'deb',
        '--name',
        'svc',
      ]
      // Another umask, another time zone, another folder for drafts.
      const script = 'umask 077; exec "$0" "$@"'
      const env = {
        ...process.env,
        TZ: 'Asia/Tokyo',
        TMPDIR: again,
        SOURCE_DATE_EPOCH: SOURCE_DATE_EPOCH.trim(),
      }
      await run('sh', ['-c', script, process.execPath, ...args], { cwd: root, env })
      const file = one('new/svc_*.deb')
      expect(spawnSync('cmp', [file, join(again, basename(file))]).status).toBe(0)
    },
  )

  const chroots = lacking('dpkg-deb', 'debootstrap', 'unshare')
  it.skipIf(chroots.length > 0)(
    'are installed, used, upgraded and purged',
    { timeout: 900_000 },
    async () => {
      const debian = join(folder, 'debian')
      const include = '--include=adduser,init-system-helpers,libatomic1,libstdc++6'
      await run('debootstrap', ['--variant=minbase', include, 'bookworm', debian])
      for (const age of ['old', 'new']) {
        mkdirSync(join(debian, age))
        for (const file of globSync('*.deb', { cwd: join(folder, age) }))
          linkSync(join(folder, age, file), join(debian, age, file))
      }
      copyFileSync(join(root, 'test/packaging/debian-root.sh'), join(debian, 'debian-root.sh'))
      const enter = `mount -t proc proc '${debian}/proc' && exec chroot '${debian}' sh /debian-root.sh`
      const env = { ...process.env, PORT: String(await freePort()) }
      const { stdout } = await run('unshare', ['--mount', '--fork', 'sh', '-c', enter], { env }).catch(
        (error: { stdout: string; stderr: string }) => ({ stdout: `${error.stdout}${error.stderr}` }),
      )
      expect(stdout).toMatch(/^passed$/m)
    },
  )

  const lints = lacking('dpkg-deb', 'lintian')
  it.skipIf(lints.length > 0)('have no fault that lintian sees', { timeout: 900_000 }, async () => {
    for (const name of ['svc', 'svc-agent']) {
      const meant = 'uses-no-compression-for-data-tarball,uses-no-compression-for-control-tarball'
      const args = ['--suppress-tags', meant, '--fail-on', 'error,warning', one(`new/${name}_*.deb`)]
      const { status, stdout } = spawnSync('lintian', args, { encoding: 'utf8' })
      expect([status, stdout]).toEqual([0, ''])
    }
  })

  const linted = lacking('rpmbuild', 'rpmlint')
  it.skipIf(linted.length > 0)('of RPM have no fault that rpmlint sees', { timeout: 900_000 }, async () => {
    const out = join(folder, 'linted')
    await build(out, '--format', 'rpm')
    const config = join(root, 'test/packaging/rpmlint.toml')
    const files = globSync('*.rpm', { cwd: out }).map((file) => join(out, file))
    expect(files).toHaveLength(2)
    const { status, stdout } = spawnSync('rpmlint', ['--config', config, ...files], { encoding: 'utf8' })
    expect([status, stdout]).toEqual([0, expect.stringContaining('0 errors, 0 warnings')])
  })

  it.skipIf(missing.length > 0)('have their bills of materials, with the Node inside', () => {
    for (const [name, part] of [
      ['svc', 'better-sqlite3'],
      ['svc-agent', 'zod'],
    ]) {
      const path = `./usr/share/doc/${name}/sbom.cdx.json`
      const pipe = 'dpkg-deb --fsys-tarfile "$0" | tar -xO "$1"'
      const text = execFileSync('sh', ['-c', pipe, one(`new/${name}_*.deb`), path], { encoding: 'utf8' })
      const { metadata, components } = JSON.parse(text)
      expect(metadata.component.name).toBe(name)
      const names = components.map((component: { name: string }) => component.name)
      expect(names).toEqual(expect.arrayContaining(['node', part]))
    }
  })

  const rpms = lacking('rpmbuild')
  it.skipIf(rpms.length > 0)(
    'of RPM have the same files, and keep their settings',
    { timeout: 300_000 },
    async () => {
      const out = join(folder, 'rpm')
      await build(out, '--format', 'rpm', '--name', 'svc')
      const rpmOf = (...args: string[]) =>
        execFileSync('rpm', ['-qp', ...args, one('rpm/*.rpm')], { encoding: 'utf8' })
          .trim()
          .split('\n')
      expect(rpmOf('--qf', '%{VERSION} %{ARCH}')).toEqual([
        `${packageVersion(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version)} x86_64`,
      ])
      expect(rpmOf('--configfiles')).toEqual(['/etc/svc/svc.env'])
      const modes = rpmOf('--qf', '[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES}\n]')
      expect(modes).toContain('-rw-r----- root /etc/svc/svc.env')
      expect(modes).toContain('-rwxr-xr-x root /usr/bin/svc')
      const deb = execFileSync('dpkg-deb', ['--contents', one('new/svc_*.deb')], { encoding: 'utf8' })
      const inDeb = [...deb.matchAll(/ \.(\/usr\/lib\/svc\/.*[^/])$/gm)].map(([, path]) => path)
      const inRpm = rpmOf('-l').filter((path) => inDeb.includes(path))
      expect(inRpm.sort()).toEqual(inDeb.sort())
    },
  )
}
