// Makes the packages of Debian and RPM for x86-64:
//   npm run build:packages -- [--out DIR] [--format deb|rpm] [--name svc|svc-agent] [--maintainer "NAME <ADDRESS>"]
//     [--version V] [--quick]
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { makeDeb } from './deb.ts'
import { root } from './lockfile.ts'
import type { Made } from './metadata.ts'
import { makeRpm } from './rpm.ts'
import { sourceDate } from './source-date.ts'
import { missingTools } from './tools.ts'
import { type Family, makeTree, type PackageName } from './trees.ts'
import { packageFile, packageVersion } from './versions.ts'

const { values } = parseArgs({
  options: {
    out: { type: 'string', default: 'packages' },
    format: { type: 'string', multiple: true, default: ['deb', 'rpm'] },
    name: { type: 'string', multiple: true, default: ['svc', 'svc-agent'] },
    maintainer: { type: 'string', default: 'svc maintainers <maintainers@svc.invalid>' },
    // By default that of package.json.
    version: { type: 'string' },
    // Uncompressed, for tests.
    quick: { type: 'boolean', default: false },
  },
})

function fail(message: string): never {
  process.stderr.write(`${message}\n`)
  process.exit(2)
}

const families = values.format.filter((one): one is Family => one === 'deb' || one === 'rpm')
const names = values.name.filter((one): one is PackageName => one === 'svc' || one === 'svc-agent')
if (families.length < values.format.length) fail('--format is deb or rpm')
if (names.length < values.name.length) fail('--name is svc or svc-agent')
if (process.platform !== 'linux' || process.arch !== 'x64') fail('The packages are made on Linux on x86-64')
if (!existsSync(join(root, 'dist/man'))) fail('Build first: npm run build && npm run build:man')
const missing = missingTools(families)
if (missing.length > 0) fail(missing.join('\n'))

const own = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
const made: Made = {
  version: packageVersion(values.version ?? own.version),
  maintainer: values.maintainer,
  seconds: sourceDate(),
  isQuick: values.quick,
}
const out = resolve(values.out)
mkdirSync(out, { recursive: true })
for (const name of names) {
  for (const family of families) {
    const folder = mkdtempSync(join(tmpdir(), 'svc-package-'))
    try {
      const tree = join(folder, 'root')
      makeTree(name, tree, family, made)
      const file = join(out, packageFile(name, family, made.version))
      if (family === 'deb') makeDeb(name, tree, made, file)
      else makeRpm(name, tree, made, file)
      process.stdout.write(`${file} ${(statSync(file).size / 1e6).toFixed(1)} MB\n`)
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  }
}
