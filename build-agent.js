// The agent as one file: npm run build:agent -- --out FILE [--version V] [--script]
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { build } from 'esbuild'
import { english, requiring, withoutEditor } from './bundling.js'

const root = fileURLToPath(new URL('.', import.meta.url))
const { values } = parseArgs({
  options: {
    out: { type: 'string' },
    version: { type: 'string' },
    // A script for an installed Node, instead of a file with its own Node.
    script: { type: 'boolean', default: false },
  },
})
if (!values.out) {
  process.stderr.write('Missing --out FILE\n')
  process.exit(2)
}
const out = resolve(values.out)
const version = values.version ?? JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version
const kind = values.script ? 'script' : 'executable'

const { outputFiles } = await build({
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
  put(text)
} else {
  const folder = mkdtempSync(join(tmpdir(), 'svc-agent-build-'))
  try {
    const main = join(folder, 'agent.mjs')
    const config = join(folder, 'config.json')
    const output = join(folder, 'svc-agent')
    writeFileSync(main, text)
    const disableExperimentalSEAWarning = true
    // NODE_OPTIONS of the environment must not affect the agent.
    const execArgvExtension = 'none'
    writeFileSync(
      config,
      JSON.stringify({
        main,
        mainFormat: 'module',
        output,
        disableExperimentalSEAWarning,
        execArgvExtension,
      }),
    )
    execFileSync(process.execPath, [`--build-sea=${config}`], { stdio: ['ignore', 'ignore', 'inherit'] })
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
