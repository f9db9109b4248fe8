#!/usr/bin/env node
// No syntax or import that an old Node lacks, so that an old Node reports its version instead of a syntax error.
import { existsSync, readFileSync, writeSync } from 'node:fs'
import module from 'node:module'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import v8 from 'node:v8'

const root = fileURLToPath(new URL('..', import.meta.url))
const entry = new URL('../dist/src/cli/main.js', import.meta.url)
const pjson = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

if (!supported(process.versions.node, pjson.engines.node)) {
  stop(`svc needs Node ${pjson.engines.node}, this is ${process.versions.node}`)
} else if (process.argv[2] === '--version') {
  print(`svc/${pjson.version} ${process.platform}-${process.arch} node-${process.version}\n`)
} else if (!existsSync(fileURLToPath(entry))) {
  stop('svc is not built; run: npm run build')
} else {
  cacheCode()
  if (process.argv[2] === 'serve') {
    // Most allocations of the start are garbage afterwards: the young generation need not grow (until runService).
    v8.setFlagsFromString('--semi-space-growth-factor=1')
    // At most four threads hash passwords: with more threads, disk writes do not wait behind them.
    process.env.UV_THREADPOOL_SIZE ??= '16'
  }
  // Otherwise oclif searches for TypeScript sources in development.
  globalThis.oclif = { enableAutoTranspile: false }
  import(entry.href).then((cli) => cli.main(process.argv.slice(2)))
}

function print(text) {
  try {
    writeSync(1, text)
  } catch (error) {
    // A reader that has ended wants nothing.
    if (error.code !== 'EPIPE')
      stop(`Error: Cannot write to standard output: ${error.message.replace(/, write$/, '')}`)
  }
}

function stop(line) {
  process.stderr.write(`${line}\n`)
  process.exitCode = 1
}

/** Caches compiled code in a private folder: others can write to the default one. */
function cacheCode() {
  if (process.env.NODE_COMPILE_CACHE || process.env.NODE_DISABLE_COMPILE_CACHE) return
  const base =
    process.env.XDG_CACHE_HOME ||
    (process.platform === 'win32' && process.env.LOCALAPPDATA) ||
    join(homedir(), '.cache')
  module.enableCompileCache(join(base, 'svc', 'compiled'))
}

/** Ranges of the form `^1.2.3 || >=4`. */
function supported(version, ranges) {
  const have = version.split('.').map(Number)
  return ranges.split('||').some((range) => {
    const match = /^\s*(\^|>=)\s*(\d+)(?:\.(\d+))?(?:\.(\d+))?\s*$/.exec(range)
    if (!match) return true
    const want = [Number(match[2]), Number(match[3] || 0), Number(match[4] || 0)]
    if (match[1] === '^' && have[0] !== want[0]) return false
    const differs = have.findIndex((part, i) => part !== want[i])
    return differs === -1 || have[differs] > want[differs]
  })
}
