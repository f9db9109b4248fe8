import { readdir } from 'node:fs/promises'
import { ReleaseFailure, type ReleaseSource } from '../../src/agents/versions/ports.ts'
import { compareVersions, isVersion } from '../../src/agents/versions/semver.ts'
import { isPrerelease } from '../../src/agents/versions/upgrade-path.ts'
import { openWithin } from './open-within.ts'
import { manifestName, signatureName } from './release-host.ts'

const maxBytes = { manifest: 1 << 20, signature: 4096 }

/** The size of a file of a version; undefined: it does not exist. */
export type SizeOf = (version: string, name: string) => Promise<number | undefined>

/** A folder for each version with its manifest; `sizeOf` finds its files. */
export function releaseDirectory(root: string, sizeOf: SizeOf): ReleaseSource {
  async function read(version: string, name: string, max: number): Promise<Buffer | undefined> {
    const file = await openWithin(root, version, name)
    if (!file) return undefined
    try {
      if (file.size <= max) return await file.handle.readFile()
    } finally {
      await file.handle.close()
    }
    throw new ReleaseFailure('host', `${version}/${name} in AGENT_BINARY_DIR is too large`)
  }

  return {
    async find(wanted) {
      const version = wanted ?? (await latestIn(root))
      const manifest =
        version === undefined ? undefined : await read(version, manifestName, maxBytes.manifest)
      if (version === undefined || !manifest) {
        const what = wanted === undefined ? 'no stable release' : `no release ${wanted}`
        throw new ReleaseFailure('absent', `There is ${what} in AGENT_BINARY_DIR`, {
          hint: `it has to exist as ${wanted ?? '1.2.3'}/${manifestName}; svc agent sign-release writes one`,
        })
      }
      return {
        tag: `v${version}`,
        notes: null,
        manifest,
        signature: (await read(version, signatureName, maxBytes.signature))?.toString('latin1'),
        async file(name) {
          const size = await sizeOf(version, name)
          return size === undefined ? undefined : { url: '', size }
        },
      }
    },
  }
}

/** The newest version with a manifest that is not a candidate. */
async function latestIn(root: string): Promise<string | undefined> {
  const names = await readdir(root).catch((error: NodeJS.ErrnoException) => {
    throw new ReleaseFailure('host', `AGENT_BINARY_DIR cannot be read (${error.code})`, { cause: error })
  })
  const stable = names.filter((name) => isVersion(name) && !isPrerelease(name)).sort(compareVersions)
  for (const version of stable.reverse()) {
    const file = await openWithin(root, version, manifestName)
    await file?.handle.close()
    if (file) return version
  }
  return undefined
}
