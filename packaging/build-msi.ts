// Makes the MSI of the agent for Windows on x86-64:
//   npm run build:msi -- --out FILE [--sbom FILE] [--version V] [--agent FILE]
import { execFileSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { root } from './lockfile.ts'
import { makeMsi } from './msi.ts'
import { nodeFor } from './platforms.ts'
import { sourceDate } from './source-date.ts'
import { missingTools } from './tools.ts'
import { putInPlace } from './trees.ts'

const { values } = parseArgs({
  options: {
    out: { type: 'string' },
    // The bill of materials, which is in the MSI as well.
    sbom: { type: 'string' },
    // By default that of package.json.
    version: { type: 'string' },
    // Another program in place of the agent, for tests.
    agent: { type: 'string' },
  },
})

function fail(message: string): never {
  process.stderr.write(`${message}\n`)
  process.exit(2)
}

if (!values.out) fail('Missing --out FILE')
const licenses = join(root, 'dist/third-party-licenses.txt')
if (!existsSync(licenses)) fail('Build first: npm run build')
const missing = missingTools(['msi'])
if (missing.length > 0) fail(missing.join('\n'))

const own = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
const version = values.version ?? own.version
const seconds = sourceDate()
const folder = mkdtempSync(join(tmpdir(), 'svc-msi-'))
try {
  const [program, sbom] = [join(folder, 'agent.exe'), join(folder, 'sbom.json')]
  const args = ['--platform', 'win32-x64', '--out', program, '--sbom', sbom, '--version', version]
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(seconds) }
  execFileSync(process.execPath, [join(root, 'build-agent.js'), ...args], { stdio: 'inherit', env })
  if (values.agent) copyFileSync(values.agent, program)
  const files = {
    'svc-agent.exe': program,
    'sbom.cdx.json': sbom,
    // The package of Node for Windows has none.
    'node-license.txt': join(dirname(nodeFor('linux-x64', folder)), '../LICENSE'),
    'third-party-licenses.txt': licenses,
  }
  const made = join(folder, 'svc-agent.msi')
  makeMsi({ version, files, seconds }, join(folder, 'contents'), made)
  const out = resolve(values.out)
  putInPlace(made, out)
  if (values.sbom) {
    mkdirSync(dirname(resolve(values.sbom)), { recursive: true })
    copyFileSync(sbom, resolve(values.sbom))
  }
  process.stdout.write(`${out} ${(statSync(out).size / 1e6).toFixed(1)} MB\n`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}
