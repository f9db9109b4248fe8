import { execFile, execFileSync, spawnSync } from 'node:child_process'
import { readFileSync, rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import { isSoak } from '../depth.ts'
import { copyCheckout, copyModules, environment, gitIn, release } from './checkout.ts'

const run = promisify(execFile)
const has = (program: string) => !spawnSync(program, ['--version']).error
const isHere =
  process.platform === 'linux' &&
  process.arch === 'x64' &&
  ['dpkg-deb', 'rpmbuild', 'wixl', 'msibuild'].every(has)

if (isSoak && !has('faketime')) console.warn('skipped: another day needs faketime')
/** Another user, where this one is root, and another day, where libfaketime is installed. */
const asAnother = [
  ...(process.getuid?.() === 0 ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : []),
  ...(has('faketime') ? ['faketime', '2031-05-06 07:08:09'] : []),
]

describe.runIf(isSoak)('two builds of one commit', () => {
  it.skipIf(!isHere)(
    'in two folders, by two users, on two days, have the same bytes',
    { timeout: 3_600_000 },
    async () => {
      const folder = await mkdtemp(join(tmpdir(), 'svc-reproducible-'))
      onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
      const [one, other] = [join(folder, 'one'), join(folder, 'a longer name', 'other')]
      copyCheckout(one)
      const kinds = ['npm', 'agent', 'msi', 'linux-x64', 'linux-arm64', 'win32-x64']
      const args = ['9.8.7', '--skip-tests', ...kinds.flatMap((kind) => ['--only', kind])]
      // Its second reader has a clock with which no certificate is valid.
      const npm_config_cache = join(folder, 'npm')
      const first = release(one, args, { npm_config_cache })
      expect([first.status, first.stderr]).toEqual([0, ''])
      // Uncompressed: xz takes minutes, and reads what is compared here.
      const packages = ['packaging/build-packages.ts', '--quick', '--out']
      await run(process.execPath, [...packages, join(one, 'release/9.8.7')], { cwd: one, env: environment })

      gitIn(folder, 'clone', '--quiet', one, other)
      execFileSync('chmod', ['711', folder])
      if (process.getuid?.() === 0)
        execFileSync('chown', ['-R', '65534:65534', join(folder, 'a longer name'), npm_config_cache])
      copyModules(other)
      const [program = 'env', ...prefix] = asAnother
      const env = {
        ...environment,
        npm_config_cache,
        TZ: 'Asia/Tokyo',
        LC_ALL: 'C',
        HOME: join(folder, 'a longer name'),
      }
      const call = async (...command: string[]) =>
        run(program, [...prefix, 'sh', '-c', 'umask 077; exec "$0" "$@"', process.execPath, ...command], {
          cwd: other,
          env,
        })
      await call('packaging/release.ts', ...args)
      await call(...packages, join(other, 'release/9.8.7'))

      const sums = readFileSync(join(one, 'release/9.8.7/SHA256SUMS'), 'utf8')
      // The notes, the package of npm, the agent for two platforms and one file of each other kind, with what is in them.
      expect(sums.trim().split('\n')).toHaveLength(2 + 2 * kinds.length)
      expect(readFileSync(join(other, 'release/9.8.7/SHA256SUMS'), 'utf8')).toBe(sums)
      const made = execFileSync('sh', ['-c', 'ls *.deb *.rpm'], { cwd: join(one, 'release/9.8.7') })
      const files = String(made).trim().split('\n')
      expect(files).toHaveLength(4)
      for (const file of files) {
        const pair = [one, other].map((place) => join(place, 'release/9.8.7', basename(file)))
        expect([file, spawnSync('cmp', pair).status]).toEqual([file, 0])
      }
    },
  )
})
