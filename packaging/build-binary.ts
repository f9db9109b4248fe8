// Makes svc as one file, with the pinned Node, for this platform or another one:
//   npm run build:binary -- --out FILE [--platform linux-x64|linux-arm64|win32-x64] [--sbom FILE]
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { constants, zstdCompressSync } from 'node:zlib'
import { hostPlatform, productionPackages, root } from './lockfile.ts'
import { machineCodeOf } from './machine-code.ts'
import { nodeFor, nodeVersion, runtimes } from './platforms.ts'
import { packagesOfBuild, sbomOf } from './sbom.ts'
import { sourceDate } from './source-date.ts'
import { filesIn, stageInstallation } from './stage.ts'
import { sha256 } from './sums.ts'
import { putInPlace } from './trees.ts'

const { values } = parseArgs({
  options: {
    out: { type: 'string' },
    platform: { type: 'string', default: hostPlatform },
    // The bill of materials of the file.
    sbom: { type: 'string' },
  },
})
const { platform } = values
if (!values.out) fail('Missing --out FILE')
if (platform !== hostPlatform && !runtimes[platform])
  fail(`--platform is ${Object.keys(runtimes).join(', ')} or that of this machine, not ${platform}`)

const folder = mkdtempSync(join(tmpdir(), 'svc-binary-'))
try {
  const home = join(folder, 'program')
  stageInstallation(home, platform)
  // Nobody finds pages in a folder of a cache.
  rmSync(join(home, 'dist/man'), { recursive: true, force: true })
  writeFileSync(join(home, 'bin/importing.cjs'), 'module.exports = (url) => import(url)\n')

  const contents = filesIn(home).map((file) => ({ path: relative(home, file), content: readFileSync(file) }))
  const files = contents.map(({ path, content }) => [path, content.length, sha256(content)])
  const assets = { 'index.json': join(folder, 'index.json'), files: join(folder, 'files') }
  writeFileSync(assets['index.json'], JSON.stringify({ digest: sha256(JSON.stringify(files)), files }))
  const packed = Buffer.concat(contents.map(({ content }) => content))
  const params = { [constants.ZSTD_c_compressionLevel]: 19 }
  writeFileSync(assets.files, zstdCompressSync(packed, { params }))

  copyFileSync(join(root, 'packaging/binary-main.cjs'), join(folder, 'main.cjs'))
  const node = nodeFor(platform, folder)
  const config = {
    executable: node,
    // The file keeps this path: that of the folder would make two builds differ.
    main: 'main.cjs',
    output: join(folder, 'svc'),
    disableExperimentalSEAWarning: true,
    // NODE_OPTIONS of the environment must not affect a program that does not look like Node.
    execArgvExtension: 'none',
    assets,
  }
  const file = join(folder, 'config.json')
  writeFileSync(file, JSON.stringify(config))
  const stdio: ['ignore', 'ignore', 'inherit'] = ['ignore', 'ignore', 'inherit']
  execFileSync(process.execPath, [`--build-sea=${file}`], { cwd: folder, stdio })
  chmodSync(config.output, 0o755)
  if (machineCodeOf(config.output) !== platform)
    throw new Error(`${config.output} is no program for ${platform}`)
  if (values.sbom) {
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    mkdirSync(dirname(resolve(values.sbom)), { recursive: true })
    const packages = [...packagesOfBuild(), ...productionPackages(platform)]
    const runtime = { version: nodeVersion, file: node }
    writeFileSync(
      values.sbom,
      sbomOf({ name: 'svc', version, packages, node: runtime, seconds: sourceDate() }),
    )
  }
  const out = resolve(values.out)
  putInPlace(config.output, out)
  process.stdout.write(`${out} ${(statSync(out).size / 1e6).toFixed(1)} MB\n`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function fail(message: string): never {
  process.stderr.write(`${message}\n`)
  process.exit(2)
}
