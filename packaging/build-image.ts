// Makes the container image of the service for x86-64, without a daemon or a registry:
//   npm run build:image -- --out FILE [--debs DIR] [--version V] [--quick]
//   npm run build:image -- --update-base
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { execution, imageLayers } from './image.ts'
import { updatePins } from './image-base.ts'
import { root } from './lockfile.ts'
import { writeImage } from './oci.ts'
import { sourceDate } from './source-date.ts'
import { putInPlace } from './trees.ts'

const { values } = parseArgs({
  options: {
    out: { type: 'string' },
    // The packages of Debian that packaging/image-base.json names.
    debs: { type: 'string' },
    // By default that of package.json.
    version: { type: 'string' },
    // Compressed quickly, for tests.
    quick: { type: 'boolean', default: false },
    'update-base': { type: 'boolean', default: false },
  },
})

function fail(message: string): never {
  process.stderr.write(`${message}\n`)
  process.exit(2)
}

if (process.platform !== 'linux' || process.arch !== 'x64') fail('The image is made on Linux on x86-64')
if (!values.out && !values['update-base']) fail('Missing --out FILE')

const folder = mkdtempSync(join(tmpdir(), 'svc-image-'))
try {
  if (values['update-base']) updatePins(folder)
  if (values.out) build(resolve(values.out))
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`)
  process.exitCode = 1
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function build(out: string): void {
  const own = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
  const version = values.version ?? own.version
  const seconds = sourceDate()
  const created = new Date(seconds * 1000).toISOString()
  const draft = join(folder, 'image.tar')
  const layers = imageLayers(folder, version, seconds, values.debs && resolve(values.debs))
  const described = execution(version, created, revision())
  writeImage(
    { name: 'svc', version, layers, execution: described, seconds, isQuick: values.quick },
    folder,
    draft,
  )
  mkdirSync(dirname(out), { recursive: true })
  putInPlace(draft, out)
  process.stdout.write(`${out} ${(statSync(out).size / 1e6).toFixed(1)} MB\n`)
}

/** The commit; undefined where the sources are no checkout. */
function revision(): string | undefined {
  try {
    const args = ['describe', '--always', '--abbrev=40', '--dirty', '--exclude=*']
    const stdio: ['ignore', 'pipe', 'ignore'] = ['ignore', 'pipe', 'ignore']
    return execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio }).trim()
  } catch {
    // git is missing, or this is no checkout.
    return undefined
  }
}
