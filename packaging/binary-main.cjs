// The start of svc as one file. The program is inside, compressed: it is unpacked once into a private folder, and checked at each
// start, since machine code can only be loaded from files.
const { createHash } = require('node:crypto')
const fs = require('node:fs')
const { createRequire } = require('node:module')
const { homedir } = require('node:os')
const { dirname, join, sep } = require('node:path')
const sea = require('node:sea')
const { pathToFileURL } = require('node:url')
const { zstdDecompressSync } = require('node:zlib')

/** Of the other versions: a service may still run from one of them. */
const mostOthers = 3

/** `files`: path, length and SHA-256 of each file, in the order in which they are packed. */
const { digest, files } = JSON.parse(sea.getAsset('index.json', 'utf8'))

start()

function start() {
  const given = process.argv[2] ?? ''
  // A child process, or the same program again, is given by its path; its environment may name no folder.
  const own = `${sep}svc${sep}program${sep}${digest}${sep}`
  const at = given.indexOf(own)
  const home = at === -1 ? unpacked() : given.slice(0, at + own.length - 1)
  if (at !== -1 && !isSound(home)) fail(`${home} is not what this program has unpacked`)
  const script = at === -1 ? join(home, 'bin', 'svc.js') : given
  process.argv.splice(1, at === -1 ? 1 : 2, script)
  // Inside the file an import finds modules of Node alone.
  createRequire(script)(join(home, 'bin', 'importing.cjs'))(pathToFileURL(script).href)
}

/** The folder of the program, which is made where it is missing or damaged. */
function unpacked() {
  const base = join(cacheFolder(), 'svc', 'program')
  const home = join(base, digest)
  if (isSound(home)) return home
  const draft = join(base, `.${digest}.${process.pid}`)
  try {
    fs.mkdirSync(base, { recursive: true, mode: 0o700 })
    if (!isPrivate(base)) return fail(`${base} belongs to another user, or others may write there`)
    fs.rmSync(draft, { recursive: true, force: true })
    unpack(draft)
    replace(home, draft)
    removeOthers(base)
  } catch (error) {
    fail(
      `it cannot be unpacked into ${home} (${error.code ?? error.message}). Set XDG_CACHE_HOME to another folder`,
    )
  }
  if (!isSound(home)) fail(`${home} is not what was unpacked`)
  return home
}

/** systemd names the folder of a service. */
function cacheFolder() {
  const { CACHE_DIRECTORY, XDG_CACHE_HOME, LOCALAPPDATA } = process.env
  return (
    CACHE_DIRECTORY ||
    XDG_CACHE_HOME ||
    (process.platform === 'win32' && LOCALAPPDATA) ||
    join(homedir(), '.cache')
  )
}

function unpack(draft) {
  const packed = zstdDecompressSync(new Uint8Array(sea.getRawAsset('files')))
  let from = 0
  for (const [path, length, sha256] of files) {
    const content = packed.subarray(from, from + length)
    from += length
    if (hashOf(content) !== sha256) throw new Error(`${path} is damaged in the program`)
    const file = join(draft, path)
    fs.mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
    fs.writeFileSync(file, content, { mode: 0o600, flag: 'wx' })
  }
}

/** Another process may do the same at the same time. */
function replace(home, draft) {
  const old = `${draft}.old`
  try {
    if (fs.existsSync(home)) fs.renameSync(home, old)
    fs.renameSync(draft, home)
  } catch (error) {
    if (!isSound(home)) throw error
  }
  for (const folder of [old, draft]) fs.rmSync(folder, { recursive: true, force: true })
}

/** Machine code by its content, all others by their length: a folder that was unpacked in part, damaged, or made by others. */
function isSound(home) {
  try {
    if (!isPrivate(home)) return false
    return files.every(([path, length, sha256]) => {
      const file = join(home, path)
      if (path.endsWith('.node')) return hashOf(fs.readFileSync(file)) === sha256
      const stat = fs.lstatSync(file)
      return stat.isFile() && stat.size === length
    })
  } catch {
    return false
  }
}

/** Otherwise another user of the machine could have put a program there. */
function isPrivate(folder) {
  const stat = fs.lstatSync(folder)
  if (!stat.isDirectory()) return false
  return process.platform === 'win32' || (stat.uid === process.getuid() && (stat.mode & 0o022) === 0)
}

function removeOthers(base) {
  const others = fs
    .readdirSync(base)
    .filter((name) => name !== digest && !name.startsWith('.'))
    .map((name) => ({ path: join(base, name), time: fs.statSync(join(base, name)).mtimeMs }))
    .sort((a, b) => b.time - a.time)
  for (const { path } of others.slice(mostOthers)) fs.rmSync(path, { recursive: true, force: true })
}

function hashOf(content) {
  return createHash('sha256').update(content).digest('hex')
}

function fail(message) {
  fs.writeSync(2, `svc: ${message}\n`)
  process.exit(1)
}
