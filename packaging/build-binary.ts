// Makes svc as one file, with the pinned Node, for this platform:
//   npm run build:binary -- --out FILE
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { constants, zstdCompressSync } from 'node:zlib'
import { filesIn, root, stagePackages, stageProgram, trimPackages } from './stage.ts'
import { putInPlace } from './trees.ts'

const { values } = parseArgs({ options: { out: { type: 'string' } } })
if (!values.out) {
  process.stderr.write('Missing --out FILE\n')
  process.exit(2)
}

const folder = mkdtempSync(join(tmpdir(), 'svc-binary-'))
try {
  const home = join(folder, 'program')
  stageProgram(home)
  // Nobody finds pages in a folder of a cache.
  rmSync(join(home, 'dist/man'), { recursive: true, force: true })
  stagePackages(home)
  trimPackages(home, `${process.platform}-${process.arch}`)
  writeFileSync(join(home, 'bin/importing.cjs'), 'module.exports = (url) => import(url)\n')

  const contents = filesIn(home).map((file) => ({ path: relative(home, file), content: readFileSync(file) }))
  const files = contents.map(({ path, content }) => [path, content.length, sha256(content)])
  const assets = { 'index.json': join(folder, 'index.json'), files: join(folder, 'files') }
  writeFileSync(assets['index.json'], JSON.stringify({ digest: sha256(JSON.stringify(files)), files }))
  const packed = Buffer.concat(contents.map(({ content }) => content))
  const params = { [constants.ZSTD_c_compressionLevel]: 19 }
  writeFileSync(assets.files, zstdCompressSync(packed, { params }))

  const config = {
    main: join(root, 'packaging/binary-main.cjs'),
    output: join(folder, 'svc'),
    disableExperimentalSEAWarning: true,
    // NODE_OPTIONS of the environment must not affect a program that does not look like Node.
    execArgvExtension: 'none',
    assets,
  }
  const file = join(folder, 'config.json')
  writeFileSync(file, JSON.stringify(config))
  execFileSync(process.execPath, [`--build-sea=${file}`], { stdio: ['ignore', 'ignore', 'inherit'] })
  chmodSync(config.output, 0o755)
  const out = resolve(values.out)
  putInPlace(config.output, out)
  process.stdout.write(`${out} ${(statSync(out).size / 1e6).toFixed(1)} MB\n`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}
