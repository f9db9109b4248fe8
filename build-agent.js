// The agent as one file, with the pinned Node, for this platform or another one, or as a script for an installed Node:
//   npm run build:agent -- --out FILE [--platform linux-x64|linux-arm64|win32-x64 | --script] [--version V] [--sbom FILE]
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { build } from 'esbuild'
import { english, requiring, withoutEditor } from './bundling.js'
import { hostPlatform } from './packaging/lockfile.ts'
import { machineCodeOf } from './packaging/machine-code.ts'
import { nodeFor, nodeVersion, runtimes } from './packaging/platforms.ts'
import { bundledPackages, sbomOf } from './packaging/sbom.ts'
import { sourceDate } from './packaging/source-date.ts'

const root = fileURLToPath(new URL('.', import.meta.url))
const { values } = parseArgs({
  options: {
    out: { type: 'string' },
    version: { type: 'string' },
    platform: { type: 'string', default: hostPlatform },
    // A script for an installed Node, instead of a file with its own Node.
    script: { type: 'boolean', default: false },
    // The bill of materials of the file.
    sbom: { type: 'string' },
  },
})
const { platform } = values
if (!values.out) fail('Missing --out FILE')
if (platform !== hostPlatform && !runtimes[platform])
  fail(`--platform is ${Object.keys(runtimes).join(', ')} or that of this machine, not ${platform}`)
const out = resolve(values.out)
const version = values.version ?? JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version
const kind = values.script ? 'script' : 'executable'

const { outputFiles, metafile } = await build({
  absWorkingDir: root,
  metafile: true,
  entryPoints: [join(root, 'src', 'device-agent', 'main.ts')],
  bundle: true,
  format: 'esm',
  platform: 'node',
  target: 'node22',
  minify: true,
  legalComments: 'none',
  define: { agentBuild: JSON.stringify({ kind, version }) },
  banner: { js: `#!/usr/bin/env node\n${requiring}` },
  plugins: [english, withoutEditor],
  write: false,
  logLevel: 'error',
})
const [{ text }] = outputFiles

mkdirSync(dirname(out), { recursive: true })
if (values.script) {
  describe(undefined)
  put(text)
} else {
  const folder = mkdtempSync(join(tmpdir(), 'svc-agent-build-'))
  try {
    const executable = nodeFor(platform, folder)
    describe({ version: nodeVersion, file: executable })
    // The file keeps this path: that of the folder would make two builds differ.
    const main = 'agent.mjs'
    const config = join(folder, 'config.json')
    const output = join(folder, 'svc-agent')
    writeFileSync(join(folder, main), text)
    const disableExperimentalSEAWarning = true
    // NODE_OPTIONS of the environment must not affect the agent.
    const execArgvExtension = 'none'
    writeFileSync(
      config,
      JSON.stringify({
        executable,
        main,
        mainFormat: 'module',
        output,
        disableExperimentalSEAWarning,
        execArgvExtension,
      }),
    )
    const stdio = ['ignore', 'ignore', 'inherit']
    execFileSync(process.execPath, [`--build-sea=${config}`], { cwd: folder, stdio })
    if (machineCodeOf(output) !== platform) throw new Error(`${output} is no program for ${platform}`)
    put(readFileSync(output))
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** Replaces the file by rename, so that a running program keeps its old file. */
function put(content) {
  writeFileSync(`${out}.built`, content)
  chmodSync(`${out}.built`, 0o755)
  renameSync(`${out}.built`, out)
}

/** Writes the bill of materials. `node` is the one in the file, if there is one. */
function describe(node) {
  if (!values.sbom) return
  const packages = bundledPackages(metafile.outputs)
  mkdirSync(dirname(resolve(values.sbom)), { recursive: true })
  writeFileSync(values.sbom, sbomOf({ name: 'svc-agent', version, packages, node, seconds: sourceDate() }))
}

function fail(message) {
  process.stderr.write(`${message}\n`)
  process.exit(2)
}
