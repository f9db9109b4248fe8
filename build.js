// Compiles to dist/ and writes the command manifest. Does nothing when nothing changed.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { copyFileSync, existsSync, globSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('.', import.meta.url))
const inRoot = (...parts) => join(root, ...parts)
const stampFile = inRoot('dist', '.stamp')
const manifestFile = inRoot('oclif.manifest.json')
const sources = globSync('{src,commands,daemon,migrations}/**/*.ts', { cwd: root }).sort()

const stamp = stampOf()
const built = existsSync(stampFile) && existsSync(manifestFile) && readFileSync(stampFile, 'utf8') === stamp
if (!built || process.argv.includes('--force')) build()

function build() {
  rmSync(stampFile, { force: true })
  // Another build, or an emptied dist, leaves an incremental state that does not match the files.
  const info = inRoot('dist', '.tsbuildinfo')
  if (sources.some((file) => !existsSync(inRoot('dist', emitted(file))))) rmSync(info, { force: true })
  const tsc = inRoot('node_modules', 'typescript', 'bin', 'tsc')
  const flags = ['-p', inRoot('tsconfig.build.json'), '--incremental', '--tsBuildInfoFile', info]
  const compiled = spawnSync(process.execPath, [tsc, ...flags], { stdio: 'inherit', cwd: root })
  removeStale()
  for (const file of globSync('migrations/*.ts', { cwd: root })) copyFileSync(inRoot(file), inRoot('dist', file))
  return writeManifest().then(() => {
    if (compiled.status !== 0) process.exit(compiled.status ?? 1)
    writeFileSync(stampFile, stamp)
  })
}

function emitted(file) {
  return file.replace(/\.ts$/, '.js')
}

/** A compiled file whose source is gone would still be a command. */
function removeStale() {
  const wanted = new Set(sources.map(emitted))
  for (const file of globSync('**/*.js', { cwd: inRoot('dist') })) {
    if (!wanted.has(file.replaceAll('\\', '/'))) rmSync(inRoot('dist', file))
  }
}

async function writeManifest() {
  globalThis.oclif = { enableAutoTranspile: false }
  const { Plugin } = await import('@oclif/core/config')
  const pjson = JSON.parse(readFileSync(inRoot('package.json'), 'utf8'))
  const plugin = new Plugin({ root, pjson, isRoot: true, type: 'core', ignoreManifest: true, errorOnManifestCreate: true })
  await plugin.load()
  const draft = `${manifestFile}.${process.pid}`
  writeFileSync(draft, `${JSON.stringify(plugin.manifest, null, 2)}\n`)
  renameSync(draft, manifestFile)
}

function stampOf() {
  const hash = createHash('sha256')
  for (const file of [...sources, 'package.json', 'tsconfig.json', 'tsconfig.build.json', 'build.js']) {
    const { mtimeMs, size } = statSync(inRoot(file))
    hash.update(`${file} ${size} ${mtimeMs}\n`)
  }
  return hash.digest('hex')
}
