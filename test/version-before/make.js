// Packs the build of an earlier version, as a commit of the history has it, for the tests of upgrades:
//   npm run version-before -- COMMIT
import { execFileSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))
const [wanted] = process.argv.slice(2)
if (wanted === undefined) {
  console.error('Name the commit or tag: npm run version-before -- v1.2.3')
  process.exit(2)
}

const run = (program, args, cwd) =>
  execFileSync(program, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }).trim()
const root = fileURLToPath(new URL('../../', import.meta.url))
const git = (...args) => run('git', args, root)

const commit = git('rev-parse', '--verify', `${wanted}^{commit}`)
const [subject, date] = ['%s', '%cs'].map((format) => git('show', '-s', `--format=${format}`, commit))
const folder = mkdtempSync(join(tmpdir(), 'svc-version-before-'))
const archive = join(here, 'version-before.tar.gz')
try {
  const tar = join(folder, 'sources.tar')
  git('archive', '--output', tar, commit)
  run('tar', ['-xf', tar], folder)
  run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], folder)
  run(process.execPath, ['build.js'], folder)
  rmSync(tar)
  const { version, dependencies } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const parts = ['bin/svc.js', 'dist', 'migrations', 'oclif.manifest.json', 'package.json', 'LICENSE']
  // The same commit gives the same bytes.
  const same = ['--sort=name', '--mtime=@0', '--owner=0', '--group=0', '--numeric-owner']
  const left = ['--exclude=dist/.*']
  const out = join(folder, 'packed.tar')
  run('tar', [...same, ...left, '-cf', out, ...parts], folder)
  run('gzip', ['-9', '-n', out], folder)
  cpSync(`${out}.gz`, archive)
  const about = { version, commit, date, subject, dependencies }
  writeFileSync(join(here, 'version-before.json'), `${JSON.stringify(about, null, 2)}\n`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}
