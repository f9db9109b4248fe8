import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { SignedRelease } from './signed-release.ts'

/** A release as in AGENT_BINARY_DIR: a folder per version, with its manifest and its files. */
export async function putRelease(directory: string, release: SignedRelease): Promise<void> {
  const folder = join(directory, release.version)
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'release-manifest.json'), release.manifest)
  await writeFile(join(folder, 'release-manifest.json.sig'), `${release.signature}\n`)
  for (const [name, bytes] of release.files) await writeFile(join(folder, name), bytes)
}
