// The bill of materials of what is shipped, in the JSON format of CycloneDX 1.6. `npm sbom` lists the packages that are installed
// beside the program, but not those that are bundled into it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { v5 as uuidOf } from 'uuid'
import { type Locked, lockedPackages, nameOf, packageFolderOf, root } from './lockfile.ts'
import { sha256OfFile } from './sums.ts'

export type Contents = {
  /** Of the program: the name that it is shipped under, and its version. */
  name: string
  version: string
  /** Folders of the packages in it and beside it. */
  packages: readonly string[]
  /** The Node in it: version and file. */
  node?: { version: string; file: string } | undefined
  /** Since 1970. */
  seconds: number
}

/** The folders of the packages that esbuild has bundled, by its notes on what it has written. */
export function bundledPackages(outputs: Record<string, { inputs: Record<string, unknown> }>): string[] {
  const files = Object.values(outputs).flatMap(({ inputs }) => Object.keys(inputs))
  return [...new Set(files.map(packageFolderOf))].filter((folder) => folder !== undefined).sort()
}

/** Those of the build in dist/. */
export const packagesOfBuild = (): string[] =>
  bundledPackages(JSON.parse(readFileSync(join(root, 'dist/.contents.json'), 'utf8')))

/** The same contents and time give the same bytes. */
export function sbomOf({ name, version, packages, node, seconds }: Contents): string {
  const locked = lockedPackages()
  const folders = [...new Set(packages)].filter((folder) => locked[folder]).sort()
  const refs = new Map(folders.map((folder) => [folder, purlOf(nameOf(folder), locked[folder]!.version)]))
  const components = new Map(
    folders.map((folder) => [refs.get(folder)!, libraryOf(nameOf(folder), locked[folder]!)]),
  )
  const needs = new Map<string, Set<string>>([...components.keys()].map((ref) => [ref, new Set()]))
  for (const folder of folders) {
    for (const needed of neededBy(locked[folder]!)) {
      const found = resolved(needed, folder, refs)
      if (found) needs.get(refs.get(folder)!)!.add(found)
    }
  }
  const own = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const product = `pkg:generic/${name}@${version}`
  const direct = Object.keys({ ...own.dependencies, ...own.devDependencies })
    .map((one) => refs.get(`node_modules/${one}`))
    .filter((ref) => ref !== undefined)
  const runtime = node && runtimeOf(node)
  const document = {
    metadata: {
      timestamp: new Date(seconds * 1000).toISOString().replace('.000Z', 'Z'),
      lifecycles: [{ phase: 'build' }],
      component: {
        type: 'application',
        'bom-ref': product,
        name,
        version,
        description: own.description,
        licenses: licensesOf(own.license),
        purl: product,
      },
    },
    components: [...(runtime ? [runtime] : []), ...[...components].sort(byRef).map(([, one]) => one)],
    dependencies: [
      { ref: product, dependsOn: [...(runtime ? [runtime['bom-ref']] : []), ...direct].sort() },
      ...(runtime ? [{ ref: runtime['bom-ref'] }] : []),
      ...[...needs].sort(byRef).map(([ref, all]) => ({ ref, dependsOn: [...all].sort() })),
    ],
  }
  const head = {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    serialNumber: `urn:uuid:${uuidOf(JSON.stringify(document), uuidOf.URL)}`,
    version: 1,
  }
  return `${JSON.stringify({ ...head, ...document }, null, 2)}\n`
}

const byRef = ([a]: [string, unknown], [b]: [string, unknown]): number => (a < b ? -1 : 1)

const purlOf = (name: string, version: string): string => `pkg:npm/${name.replace('@', '%40')}@${version}`

function libraryOf(full: string, { version, integrity, license, optional }: Locked) {
  const [group, name] = full.includes('/') ? full.split('/') : [undefined, full]
  const purl = purlOf(full, version)
  return {
    type: 'library',
    'bom-ref': purl,
    ...(group && { group }),
    name,
    version,
    scope: optional ? 'optional' : 'required',
    // Of the package as the registry has it.
    ...(integrity && { hashes: [hashIn(integrity)] }),
    ...(license && { licenses: licensesOf(license) }),
    purl,
  }
}

function hashIn(integrity: string) {
  const [, algorithm, content] = /^sha(\d+)-(.+)$/.exec(integrity)!
  return { alg: `SHA-${algorithm}`, content: Buffer.from(content!, 'base64').toString('hex') }
}

function runtimeOf({ version, file }: { version: string; file: string }) {
  const ref = `pkg:generic/node@${version}`
  return {
    type: 'platform',
    'bom-ref': ref,
    name: 'node',
    version,
    scope: 'required',
    hashes: [{ alg: 'SHA-256', content: sha256OfFile(file) }],
    licenses: licensesOf('MIT'),
    purl: ref,
    cpe: `cpe:2.3:a:nodejs:node.js:${version}:*:*:*:*:*:*:*`,
  }
}

/** Identifiers of SPDX, or an expression of them. */
const licensesOf = (license: string) =>
  /[ ()]/.test(license) ? [{ expression: license }] : [{ license: { id: license } }]

const neededBy = ({ dependencies, optionalDependencies, peerDependencies }: Locked): string[] =>
  Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies })

/** As Node looks for it: in the folder itself, and then in those above. */
function resolved(name: string, from: string, refs: ReadonlyMap<string, string>): string | undefined {
  for (let folder = from; ; folder = folder.slice(0, folder.lastIndexOf('/node_modules/'))) {
    const found = refs.get(`${folder}/node_modules/${name}`)
    if (found || !folder.includes('/node_modules/')) return found ?? refs.get(`node_modules/${name}`)
  }
}
