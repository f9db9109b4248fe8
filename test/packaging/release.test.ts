import { execFileSync, spawnSync } from 'node:child_process'
import { createPrivateKey, generateKeyPairSync } from 'node:crypto'
import { appendFileSync, chmodSync, existsSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { firstSection, isUnreleased, released } from '../../packaging/changelog.ts'
import { documents } from '../../packaging/named-files.ts'
import { runtimes } from '../../packaging/platforms.ts'
import { shWord } from '../../src/cli/shell-words.ts'
import { publicOf } from '../../src/cli/sign-release.ts'
import { blocksOf } from '../operations/guide.ts'
import { copyCheckout, copyModules, environment, gitIn, release } from './checkout.ts'

const npm = execFileSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).trim()

/** The commands below a heading of the notes. */
const commandsIn = (notes: string, heading: string): string[] =>
  notes
    .split(/^## /m)
    .find((part) => part.startsWith(heading))!
    .match(/^ {4}\S.*$/gm)!
    .map((line) => line.trim())

const changelog = '# Changelog\n\n## 0.2.0 (unreleased)\n\n- New.\n\n## 0.1.0 (2026-01-02)\n\n- Old.\n'

describe('the changelog of a release', () => {
  it('gives its heading the version and the date, and nothing else', () => {
    const text = released(changelog, '0.3.0', '2026-03-04')
    expect(text).toBe(changelog.replace('0.2.0 (unreleased)', '0.3.0 (2026-03-04)'))
    expect(firstSection(text)).toEqual({
      heading: '0.3.0 (2026-03-04)',
      version: '0.3.0',
      date: '2026-03-04',
      text: '- New.',
    })
    expect(firstSection('## 1.0.0 (2026-01-02)\n\n- Last.\n')).toMatchObject({ text: '- Last.' })
    expect(firstSection('# Changelog\n')).toBeUndefined()
    expect(isUnreleased({ heading: 'Unreleased', text: '' })).toBe(true)
    expect(() => released(text, '0.4.0', '2026-03-04')).toThrow('does not begin with unreleased changes')
  })
})

describe.skipIf(process.platform !== 'linux' || process.arch !== 'x64')(
  'a release',
  { timeout: 600_000 },
  () => {
    const version = '9.8.7'
    let folder: string
    let base: string

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'svc-release-test-'))
      base = join(folder, 'one')
      copyCheckout(base)
      return () => rmSync(folder, { recursive: true, force: true })
    }, 300_000)

    const nameRepository = (repository: string) => {
      const file = join(base, 'package.json')
      const own = JSON.parse(readFileSync(file, 'utf8'))
      writeFileSync(file, `${JSON.stringify({ ...own, repository }, null, 2)}\n`)
    }
    const state = () => [
      gitIn(base, 'rev-parse', 'HEAD'),
      gitIn(base, 'status', '--porcelain'),
      gitIn(base, 'tag'),
    ]

    describe('that cannot be made', () => {
      beforeEach(() => {
        const before = state()
        return () => {
          gitIn(base, 'reset', '--quiet', '--hard', before[0]!)
          gitIn(base, 'clean', '--quiet', '-fd')
        }
      })
      const refused = (said: string | RegExp, ...args: string[]) => {
        const before = state()
        const { status, stderr } = release(base, args)
        expect(stderr).toMatch(said)
        expect(status).toBeGreaterThan(0)
        expect(state()).toEqual(before)
        expect(existsSync(join(base, 'release'))).toBe(false)
      }

      it('says what is wrong with the command line', () => {
        refused('Name one version')
        refused('is not a version', 'v1.2')
        refused('--only is one of npm, deb', version, '--only', 'zip')
        refused("Unknown option '--key'", version, '--key', 'secret')
        refused('--builder is a URI', version, '--builder', 'me')
      })

      it('says what is wrong with the checkout', () => {
        refused('0.0.1 is not newer than the', '0.0.1')
        writeFileSync(join(base, 'man/new.txt'), '')
        refused('The checkout has changes:\n    ?? man/new.txt\n  Commit them', version)
        rmSync(join(base, 'man/new.txt'))
        nameRepository('ada/svc')
        refused('repository in package.json is an address as https://HOST/PATH, not ada/svc', version)
      })

      it('says what is wrong with the changelog', () => {
        writeFileSync(join(base, 'CHANGELOG.md'), '# Changelog\n\n## 0.1.0 (2026-01-02)\n\n- Old.\n')
        gitIn(base, 'commit', '--quiet', '-am', 'old')
        refused(`below ## ${version} (unreleased)`, version)
      })

      it('is not one that has been made of another commit', () => {
        gitIn(base, 'tag', `v${version}`)
        gitIn(base, 'commit', '--quiet', '--allow-empty', '-m', 'later')
        refused('already: choose another version', version)
        gitIn(base, 'tag', '--delete', `v${version}`)
        gitIn(base, 'tag', 'v10.0.0')
        refused('is not newer than v10.0.0', version)
        gitIn(base, 'tag', '--delete', 'v10.0.0')
      })

      it('takes no key that others can read', () => {
        const file = join(folder, 'open.key')
        writeFileSync(file, '')
        chmodSync(file, 0o644)
        refused('can be read by others', version, '--key-file', file)
      })
    })

    it('is shown by a dry run, which changes nothing', () => {
      const before = state()
      const { status, stdout } = release(base, [version, '--dry-run'])
      expect(status).toBe(0)
      const lines = stdout.trim().split('\n')
      expect(lines).toContain('· npm ci && npm test')
      expect(lines).toContain(`· make svc_${version}-1_amd64.deb`)
      expect(lines.at(-1)).toBe(`· tag v${version}`)
      expect(stdout).toContain('without provenance.intoto.jsonl, which names the repository')
      expect([state(), existsSync(join(base, 'release'))]).toEqual([before, false])
    })

    it('is made of what the tests ran on, and of nothing else', async () => {
      const [before] = state()
      const programs = await mkdtemp(join(folder, 'programs-'))
      // In place of the tests, which take long.
      const stand = `#!/bin/sh\ncase $1 in\nci) ;;\ntest) eval "$DURING" ;;\n*) exec '${npm}' "$@" ;;\nesac\n`
      writeFileSync(join(programs, 'npm'), stand, { mode: 0o755 })
      const call = (DURING: string) =>
        release(base, [version, '--only', 'npm'], { DURING, PATH: `${programs}:${process.env.PATH}` })

      const failed = call('exit 1')
      expect([failed.status, failed.stderr]).toEqual([1, expect.stringContaining('The tests fail')])
      const meanwhile = call('echo >man/new.txt; echo >>CHANGELOG.md')
      expect([meanwhile.status, meanwhile.stderr]).toEqual([
        1,
        expect.stringContaining(
          'while the tests ran, and nothing is committed:\n    MM CHANGELOG.md\n    ?? man/new.txt',
        ),
      ])
      gitIn(base, 'restore', 'CHANGELOG.md')
      rmSync(join(base, 'man/new.txt'))

      const hook = join(base, '.git/hooks/pre-commit')
      writeFileSync(hook, '#!/bin/sh\nexit 1\n', { mode: 0o755 })
      expect(call('').stdout).toContain('· npm ci && npm test')
      appendFileSync(join(base, 'README.md'), 'other')
      const edited = call('')
      expect([edited.status, edited.stderr]).toEqual([
        1,
        expect.stringContaining('✗ The checkout has changes:\n    MM README.md\n  Commit them'),
      ])
      gitIn(base, 'restore', 'README.md')
      expect(call('').stdout).toContain('✓ npm ci && npm test')
      rmSync(hook)
      expect(gitIn(base, 'rev-parse', 'HEAD')).toBe(before)
      gitIn(base, 'reset', '--quiet', '--hard')
      rmSync(join(base, 'release'), { recursive: true })
    })

    it('is committed, made, signed, checked and tagged; and by anyone else again, with the same bytes', () => {
      const { privateKey } = generateKeyPairSync('ed25519')
      const key = join(folder, 'release.key')
      writeFileSync(key, privateKey.export({ format: 'pem', type: 'pkcs8' }), { mode: 0o600 })
      const maintainer = "Ada O'Hara <ada@example.com>"
      const args = [version, '--skip-tests', '--only', 'npm', '--maintainer', maintainer]
      nameRepository('git+https://git.example.com/ada/svc.git')
      gitIn(base, 'commit', '--quiet', '-am', 'name the repository')
      const first = release(base, [...args, '--key-file', key])
      expect([first.status, first.stderr]).toEqual([0, ''])
      const { publicKeyB64 } = publicOf(createPrivateKey(readFileSync(key, 'utf8')))
      expect(first.stdout).toContain(publicKeyB64)

      const commit = gitIn(base, 'rev-parse', 'HEAD')
      expect(gitIn(base, 'log', '-1', '--format=%s')).toBe(`release: ${version}`)
      expect(gitIn(base, 'rev-parse', `v${version}^{commit}`)).toBe(commit)
      expect(gitIn(base, 'status', '--porcelain')).toBe('')
      const changed = ['CHANGELOG.md', 'package-lock.json', 'package.json', ...documents]
      expect(gitIn(base, 'diff', '--name-only', 'HEAD~1').split('\n')).toEqual(changed.sort())

      const out = join(base, 'release', version)
      const read = (name: string, from = out) => readFileSync(join(from, name), 'utf8')
      const tarball = `svc-${version}.tgz`
      expect(globSync('*', { cwd: out }).sort()).toEqual(
        [
          'RELEASE-NOTES',
          'SHA256SUMS',
          'SHA256SUMS.sig',
          'provenance.intoto.jsonl',
          'provenance.intoto.jsonl.sig',
        ]
          .concat('release-key.pem', tarball)
          .sort(),
      )
      // As the notes tell whoever has the files.
      const checks = commandsIn(read('RELEASE-NOTES'), 'Check what you have')
      const said = checks.map((line) => {
        const { status, stdout, stderr } = spawnSync('sh', ['-c', line], { cwd: out, encoding: 'utf8' })
        expect([line, status, stderr]).toEqual([line, 0, ''])
        return stdout.trim()
      })
      expect([said[0], said.at(-1)]).toEqual([publicKeyB64, `"gitCommit":"${commit}"`])
      const inGuide = blocksOf('install').filter(({ notRun }) => notRun === 'release')
      expect(inGuide.flatMap(({ script }) => script.trim().split('\n'))).toEqual(checks)
      writeFileSync(join(out, 'signature'), Buffer.alloc(64))
      const verifying = checks.filter((line) => line.startsWith('openssl pkeyutl'))
      expect(verifying).toHaveLength(2)
      for (const line of verifying) expect(spawnSync('sh', ['-c', line], { cwd: out }).status).toBe(1)
      rmSync(join(out, 'signature'))
      expect(read('RELEASE-NOTES')).toContain(`\`svc-${version}-win32-x64.exe\` is not in this release`)

      const sums = new Map(
        read('SHA256SUMS')
          .trim()
          .split('\n')
          .map((line) => line.split('  ').reverse() as [string, string]),
      )
      expect([...sums.keys()]).toEqual(['RELEASE-NOTES', tarball])
      const statement = JSON.parse(read('provenance.intoto.jsonl'))
      expect(statement).toMatchObject({
        _type: 'https://in-toto.io/Statement/v1',
        predicateType: 'https://slsa.dev/provenance/v1',
      })
      expect(statement.subject).toContainEqual({ name: tarball, digest: { sha256: sums.get(tarball) } })
      const { buildDefinition, runDetails } = statement.predicate
      const { resolvedDependencies, externalParameters } = buildDefinition
      const page = readFileSync(join(base, 'docs/releasing.md'), 'utf8')
      const sections = [...page.matchAll(/^### (.*)$/gm)].map(
        ([, title]) => `#${title!.toLowerCase().replaceAll(' ', '-')}`,
      )
      for (const uri of [buildDefinition.buildType, runDetails.builder.id]) {
        expect(uri).toMatch(/^https:\/\/git\.example\.com\/ada\/svc\/blob\/HEAD\/docs\/releasing\.md#/)
        expect(sections).toContain(new URL(uri).hash)
      }
      for (const name of Object.keys(externalParameters))
        expect(page).toContain(`externalParameters.${name}\``)
      expect(externalParameters).toEqual({ version, artifacts: ['npm'], maintainer })
      expect(resolvedDependencies).toContainEqual({
        name: 'source',
        uri: `git+https://git.example.com/ada/svc@refs/tags/v${version}`,
        digest: { gitCommit: commit },
      })
      expect(resolvedDependencies).toContainEqual({
        name: 'package-lock.json',
        digest: {
          sha256: execFileSync('sha256sum', ['package-lock.json'], { cwd: base, encoding: 'utf8' }).slice(
            0,
            64,
          ),
        },
      })
      expect(JSON.stringify(resolvedDependencies)).toContain(runtimes['win32-x64']!.sha256)
      const sbom = execFileSync('tar', ['-xzOf', join(out, tarball), 'package/dist/sbom.cdx.json'])
      expect(JSON.parse(String(sbom)).metadata.component).toMatchObject({ name: 'svc', version })

      // The packages would be of one maintainer, and what is said of them of another.
      const unlike = release(base, args.slice(0, -2))
      expect([unlike.status, unlike.stderr]).toEqual([
        1,
        expect.stringContaining(`--maintainer 'Ada O'\\''Hara <ada@example.com>': say so again`),
      ])

      // Everything is there: nothing is made again, and a lost part is.
      const again = release(base, [...args, '--key-file', key])
      expect(again.stdout).toContain(`✓ make ${tarball}`)
      const [known, signature] = [read('SHA256SUMS'), read('SHA256SUMS.sig')]
      const whole = readFileSync(join(out, tarball))
      writeFileSync(join(out, tarball), whole.subarray(1))
      const damaged = release(base, [...args, '--key-file', key])
      expect([damaged.status, damaged.stderr]).toEqual([
        1,
        expect.stringContaining(`${tarball} is not as SHA256SUMS says: remove it`),
      ])
      expect(read('SHA256SUMS')).toBe(known)
      rmSync(join(out, tarball))
      gitIn(base, 'tag', '--delete', `v${version}`)
      const resumed = release(base, [...args, '--key-file', key])
      expect(resumed.stdout).toContain(`✓ commit release: ${version}`)
      expect(resumed.stdout).toContain(`· make ${tarball}`)
      expect([read('SHA256SUMS'), read('SHA256SUMS.sig')]).toEqual([known, signature])
      expect(gitIn(base, 'rev-parse', `v${version}^{commit}`)).toBe(commit)

      const other = join(folder, 'of another one')
      gitIn(folder, 'clone', '--quiet', base, other)
      execFileSync('chmod', ['-R', 'go=', other])
      copyModules(other)
      // As the notes tell whoever builds it again; the packages of npm are there.
      const commands = commandsIn(read('RELEASE-NOTES'), 'Build the same files').map((line) =>
        line.replace(/^npm ci$/, 'umask 077').replace('PUBLISHED', shWord(out)),
      )
      const printed = commands[2]!.replace(/^npm run release --/, "printf '%s\\n'")
      expect(String(execFileSync('sh', ['-c', printed]))).toBe(`${args.join('\n')}\n`)
      const env = { ...environment, TZ: 'Asia/Tokyo', LC_ALL: 'C' }
      const rebuilt = spawnSync('sh', ['-ec', commands.join('\n')], { cwd: other, env, encoding: 'utf8' })
      expect([rebuilt.status, rebuilt.stdout]).toEqual([0, expect.stringContaining('leave them UNSIGNED')])
      expect(commands).toHaveLength(4)
      expect(read('SHA256SUMS', join(other, 'release', version))).toBe(known)
    })

    it('is made of one commit alone', () => {
      gitIn(base, 'commit', '--quiet', '--allow-empty', '-m', `release: ${version}`)
      gitIn(base, 'tag', '--delete', `v${version}`)
      const { status, stderr } = release(base, [version, '--skip-tests', '--only', 'npm'])
      expect([status, stderr]).toEqual([1, expect.stringMatching(/has files of commit .*: remove it/)])
    })
  },
)
