// Builds dist/ and the command manifest from the sources. Does nothing when nothing changed.
import { createHash } from 'node:crypto'
import {
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import lockfile from 'proper-lockfile'
import { english, late, requiring, withoutEditor } from './bundling.js'
import { licensesOf, packagesOf } from './packaging/parts.ts'
import { fileNames, scripts } from './src/cli/completion/scripts.ts'

const root = fileURLToPath(new URL('.', import.meta.url))
const inRoot = (...parts) => join(root, ...parts)
const dist = inRoot('dist')
const stampFile = join(dist, '.stamp')
const manifestFile = inRoot('oclif.manifest.json')
const sources = globSync('{src,commands,daemon,migrations}/**/*.ts', { cwd: root }).sort()

/** Files that are loaded by path: the program, each command, and code of threads and child processes. */
const entries = ['src/cli/main.ts', ...globSync('{commands/**/*,src/**/*-{thread,child}}.ts', { cwd: root })]

/**
 * Packages with native code or data files stay in node_modules: they are the dependencies in package.json. All others are
 * bundled into dist/ without unused code, since resolving and loading a thousand small modules takes longer than everything
 * else at the start; they are devDependencies, which an installation does not need.
 */
const outside = ['@node-rs/argon2', '@zxcvbn-ts/*', 'better-sqlite3', 'jq-wasm', 'pg', 'systeminformation']

listMigrations()
const stamp = stampOf()
const isBuilt = () =>
  existsSync(stampFile) && existsSync(manifestFile) && readFileSync(stampFile, 'utf8') === stamp

linkProgram()

if (!isBuilt()) {
  mkdirSync(dist, { recursive: true })
  const release = await lockfile.lock(dist, {
    stale: 30_000,
    retries: { retries: 120, factor: 1, minTimeout: 500 },
  })
  try {
    if (!isBuilt()) await make()
  } finally {
    await release()
  }
}

/** migrations/all.ts: a bundle finds no files, so each is imported by name. */
function listMigrations() {
  const names = globSync('migrations/[0-9]*.ts', { cwd: root }).map((file) =>
    file.slice('migrations/'.length, -'.ts'.length),
  )
  const text = names
    .sort()
    .map((name) => `export * as '${name}' from './${name}.ts'\n`)
    .join('')
  const file = inRoot('migrations/all.ts')
  if (readFileSync(file, 'utf8') !== text) writeFileSync(file, text)
}

/** As npm does for a dependency, so that npx and a PATH with node_modules/.bin find the program of this checkout. */
function linkProgram() {
  try {
    symlinkSync(join('..', '..', 'bin', 'svc.js'), inRoot('node_modules', '.bin', 'svc'))
  } catch {
    // It is there, or this system has no links for everybody: npx finds the program anyway.
  }
}

async function make() {
  rmSync(stampFile, { force: true })
  const made = await bundle()
  for (const file of globSync('**/*.js', { cwd: dist })) {
    // A file of an earlier build would still be a command.
    if (!made.has(join(dist, file))) rmSync(join(dist, file))
  }
  await writeManifest()
  writeCompletions()
  writeFileSync(stampFile, stamp)
}

/** Bundles the sources and returns the written files. */
async function bundle() {
  const { build } = await import('esbuild')
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: entries,
    outbase: '.',
    outdir: 'dist',
    chunkNames: 'shared/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node22',
    external: outside,
    plugins: [english, withoutEditor, late(outside)],
    banner: { js: requiring },
    legalComments: 'none',
    // The engine keeps the source text in memory; names are not minified, for readable stack traces.
    minifyWhitespace: true,
    minifySyntax: true,
    metafile: true,
    logLevel: 'error',
  })
  writeFileSync(join(dist, '.contents.json'), JSON.stringify(metafile.outputs))
  const used = Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs))
  writeFileSync(join(dist, 'third-party-licenses.txt'), licensesOf(packagesOf(root, used)))
  return new Set(Object.keys(metafile.outputs).map((file) => inRoot(file)))
}

/** For all users of a machine: a package or an administrator copies them to where each shell looks. */
function writeCompletions() {
  mkdirSync(join(dist, 'completions'), { recursive: true })
  for (const [shell, script] of Object.entries(scripts))
    writeFileSync(join(dist, 'completions', fileNames[shell]), script)
}

async function writeManifest() {
  globalThis.oclif = { enableAutoTranspile: false }
  const { Plugin } = await import('@oclif/core/config')
  const pjson = JSON.parse(readFileSync(inRoot('package.json'), 'utf8'))
  const own = { root, pjson, isRoot: true, type: 'core' }
  const plugin = new Plugin({ ...own, ignoreManifest: true, errorOnManifestCreate: true })
  await plugin.load()
  const draft = `${manifestFile}.${process.pid}`
  // They come in the order in which files were read: two builds of one source would differ.
  const commands = Object.fromEntries(
    Object.entries(plugin.manifest.commands).sort(([a], [b]) => (a < b ? -1 : 1)),
  )
  // The text is also kept in memory: without white space, and in ASCII, which takes one byte per character.
  const text = JSON.stringify({ ...plugin.manifest, commands }).replace(/[\u0080-\uffff]/g, escaped)
  writeFileSync(draft, `${text}\n`)
  renameSync(draft, manifestFile)
}

function escaped(character) {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** Changes with every source, and with the build scripts. */
function stampOf() {
  const hash = createHash('sha256')
  for (const file of [
    ...sources,
    'package.json',
    'tsconfig.json',
    'build.js',
    'bundling.js',
    'packaging/parts.ts',
  ]) {
    const { mtimeMs, size } = statSync(inRoot(file))
    hash.update(`${file} ${size} ${mtimeMs}\n`)
  }
  // `svc help help` names them.
  hash.update(globSync('man/*.md', { cwd: root }).sort().join())
  return hash.digest('hex')
}
