import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { lockedPackages, productionOfAllPlatforms, productionPackages } from '../../packaging/lockfile.ts'
import { type Contents, packagesOfBuild, sbomOf } from '../../packaging/sbom.ts'

const packages = [...packagesOfBuild(), ...productionPackages('linux-x64')]
const contents: Contents = { name: 'svc', version: '1.2.3', packages, seconds: 1_700_000_000 }
const text = sbomOf(contents)
type Component = {
  'bom-ref': string
  purl: string
  hashes?: { alg: string; content: string }[]
  licenses?: unknown
}
const read = (sbom: string) =>
  JSON.parse(sbom) as {
    serialNumber: string
    metadata: { timestamp: string; component: Component }
    components: Component[]
    dependencies: { ref: string; dependsOn?: string[] }[]
  }
const sbom = read(text)
const purls = sbom.components.map(({ purl }) => purl)

describe('a bill of materials', () => {
  it('is the same for the same contents, and has no time or number of its own', () => {
    expect(sbomOf({ ...contents, packages: [...packages].reverse() })).toBe(text)
    expect(sbom.metadata.timestamp).toBe('2023-11-14T22:13:20Z')
    expect(sbom.serialNumber).toMatch(
      /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    )
    expect(read(sbomOf({ ...contents, seconds: 1 })).serialNumber).not.toBe(sbom.serialNumber)
    expect(read(sbomOf({ ...contents, packages: packages.slice(1) })).serialNumber).not.toBe(
      sbom.serialNumber,
    )
  })

  it('names what is bundled and what is installed beside it, and nothing that only builds or tests it', () => {
    const locked = lockedPackages()
    for (const name of ['fastify', 'zod', 'kysely', 'better-sqlite3', 'pg', 'undici'])
      expect(purls).toContain(`pkg:npm/${name}@${locked[`node_modules/${name}`]!.version}`)
    expect(purls.join()).toContain('pkg:npm/%40node-rs/argon2-linux-x64-gnu@')
    for (const name of ['vitest', 'esbuild', 'biome', 'argon2-win32', 'argon2-linux-x64-musl'])
      expect(purls.join()).not.toContain(name)
    // Whoever hands it on has to hand on the licenses of the same packages.
    const licenses = readFileSync('dist/third-party-licenses.txt', 'utf8')
    const bundled = [...licenses.matchAll(/^((?:@[\w-]+\/)?[\w.-]+) (\d+\.\d+\.\d+\S*) \(/gm)]
    expect(bundled.length).toBeGreaterThan(50)
    for (const [, name, version] of bundled)
      expect(purls).toContain(`pkg:npm/${name!.replace('@', '%40')}@${version}`)
  })

  it('has the license of each package, and the checksum that package-lock.json has', () => {
    const { integrity } = lockedPackages()['node_modules/pg']!
    const content = Buffer.from(integrity!.replace('sha512-', ''), 'base64').toString('hex')
    const pg = sbom.components.find(({ purl }) => purl.startsWith('pkg:npm/pg@'))!
    expect(pg.hashes).toEqual([{ alg: 'SHA-512', content }])
    expect(sbom.components.filter(({ licenses, hashes }) => !licenses || !hashes)).toEqual([])
  })

  it('has the graph of what needs what, each by a name that is there once', () => {
    const refs = [sbom.metadata.component, ...sbom.components].map((one) => one['bom-ref'])
    expect(new Set(refs).size).toBe(refs.length)
    expect(sbom.dependencies.map(({ ref }) => ref).sort()).toEqual([...refs].sort())
    const needed = sbom.dependencies.flatMap(({ dependsOn }) => dependsOn ?? [])
    expect(refs).toEqual(expect.arrayContaining(needed))
    // Nothing is in it that nothing needs.
    expect(sbom.components.map(({ purl }) => purl).filter((purl) => !needed.includes(purl))).toEqual([])
    const fastify = sbom.dependencies.find(({ ref }) => ref.startsWith('pkg:npm/fastify@'))!
    expect(fastify.dependsOn!.join()).toContain('pkg:npm/find-my-way@')
  })

  it('has the Node that is inside, with the checksum of its program', () => {
    const node = { version: '26.0.0', file: 'package.json' }
    const { components, dependencies } = read(sbomOf({ ...contents, node }))
    expect(components[0]).toMatchObject({ type: 'platform', name: 'node', version: '26.0.0' })
    expect(dependencies[0]!.dependsOn).toContain('pkg:generic/node@26.0.0')
  })

  it('of the npm package has what npm chooses from on each platform', () => {
    const all = productionOfAllPlatforms().join()
    for (const name of ['argon2-win32-x64-msvc', 'argon2-linux-arm64-gnu', 'keyring-darwin-arm64'])
      expect(all).toContain(name)
    expect(productionPackages('win32-x64').join()).toContain('argon2-win32-x64-msvc')
    expect(productionPackages('win32-x64').join()).not.toContain('argon2-linux')
  })
})
