// Compiles to dist/ and writes the command manifest. Does nothing when nothing changed.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import lockfile from 'proper-lockfile'

const root = fileURLToPath(new URL('.', import.meta.url))
const inRoot = (...parts) => join(root, ...parts)
const dist = inRoot('dist')
const stampFile = join(dist, '.stamp')
const manifestFile = inRoot('oclif.manifest.json')
const sources = globSync('{src,commands,daemon,migrations}/**/*.ts', { cwd: root }).sort()
const outputs = sources.map((file) => file.replaceAll('\\', '/').replace(/\.ts$/, '.js'))

/**
 * Packages of a hundred small modules each: to load them one by one took a fifth of the time of a client
 * command, and a quarter of the memory of the service.
 */
const gathered = ['zod', 'kysely', 'jose', 'otplib', 're2js']

/** Of the fifty languages that zod can complain in. */
const english = {
  name: 'english',
  setup({ onLoad }) {
    onLoad({ filter: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/ }, () => ({
      contents: `export { default as en } from './en.js'`,
    }))
  },
}

const stamp = stampOf()
const isBuilt = () =>
  existsSync(stampFile) && existsSync(manifestFile) && readFileSync(stampFile, 'utf8') === stamp

if (!isBuilt()) {
  mkdirSync(dist, { recursive: true })
  const release = await lockfile.lock(dist, {
    stale: 30_000,
    retries: { retries: 120, factor: 1, minTimeout: 500 },
  })
  try {
    if (!isBuilt()) await build()
  } finally {
    await release()
  }
}

async function build() {
  rmSync(stampFile, { force: true })
  const compiled = compile()
  removeStale()
  for (const file of globSync('migrations/*.ts', { cwd: root })) copyFileSync(inRoot(file), join(dist, file))
  await packagesInOneFile()
  await writeManifest()
  if (compiled === 0) writeFileSync(stampFile, stamp)
  else process.exitCode = compiled
}

function compile() {
  const info = join(dist, '.tsbuildinfo')
  // What was emitted before is not all there: the incremental state would leave it so.
  if (outputs.some((file) => !existsSync(join(dist, file)))) rmSync(info, { force: true })
  const tsc = inRoot('node_modules', 'typescript', 'bin', 'tsc')
  const flags = ['-p', inRoot('tsconfig.build.json'), '--incremental', '--tsBuildInfoFile', info]
  return spawnSync(process.execPath, [tsc, ...flags], { stdio: 'inherit', cwd: root }).status ?? 1
}

/** A compiled file whose source is gone would still be a command. */
function removeStale() {
  const wanted = new Set(outputs)
  for (const file of globSync('**/*.js', { cwd: dist })) {
    if (!wanted.has(file.replaceAll('\\', '/'))) rmSync(join(dist, file))
  }
}

/** Each package in one file with what is used of it; the compiled files import that. */
async function packagesInOneFile() {
  const { build } = await import('esbuild')
  // From the package itself, or from its one file where an earlier build has been.
  const importing = /\bimport \{([^}]*)\} from ['"](?:[./]*\/)?([\w-]+)(?:\.js)?['"]/g
  const compiled = outputs.filter((file) => existsSync(join(dist, file)))
  const texts = new Map(compiled.map((file) => [file, readFileSync(join(dist, file), 'utf8')]))
  for (const name of gathered) {
    const imports = [...texts.values()].flatMap((text) => [...text.matchAll(importing)])
    const used = imports.filter(([, , from]) => from === name)
    const names = new Set(
      used.flatMap(([, list]) => list.split(',').map((one) => one.trim().split(' as ')[0])),
    )
    names.delete('')
    await build({
      stdin: { contents: `export { ${[...names].join(', ')} } from '${name}'`, resolveDir: root },
      bundle: true,
      format: 'esm',
      platform: 'node',
      // The engine keeps the text of what it has loaded.
      minify: true,
      legalComments: 'none',
      plugins: [english],
      outfile: join(dist, `${name}.js`),
      logLevel: 'error',
    })
  }
  for (const [file, text] of texts) {
    const near = (name) => posix.relative(posix.dirname(file), `${name}.js`).replace(/^(?!\.)/, './')
    const rewritten = text.replace(/(\bfrom\s*)(['"])([\w-]+)\2/g, (whole, from, _, name) =>
      gathered.includes(name) ? `${from}'${near(name)}'` : whole,
    )
    if (rewritten !== text) writeFileSync(join(dist, file), rewritten)
  }
}

async function writeManifest() {
  globalThis.oclif = { enableAutoTranspile: false }
  const { Plugin } = await import('@oclif/core/config')
  const pjson = JSON.parse(readFileSync(inRoot('package.json'), 'utf8'))
  const own = { root, pjson, isRoot: true, type: 'core' }
  const plugin = new Plugin({ ...own, ignoreManifest: true, errorOnManifestCreate: true })
  await plugin.load()
  const draft = `${manifestFile}.${process.pid}`
  // Held in memory as text as well: without white space, and in ASCII, which takes one byte a character.
  const text = JSON.stringify(plugin.manifest).replace(/[\u0080-\uffff]/g, escaped)
  writeFileSync(draft, `${text}\n`)
  renameSync(draft, manifestFile)
}

function escaped(character) {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** Changes with every source, and with what turns them into dist. */
function stampOf() {
  const hash = createHash('sha256')
  for (const file of [...sources, 'package.json', 'tsconfig.json', 'tsconfig.build.json', 'build.js']) {
    const { mtimeMs, size } = statSync(inRoot(file))
    hash.update(`${file} ${size} ${mtimeMs}\n`)
  }
  return hash.digest('hex')
}
