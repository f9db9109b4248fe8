import { ReleaseFailure, type ReleaseSource } from '../../src/agents/versions/ports.ts'
import { type SignedRelease, signedRelease } from './signed-release.ts'

/** Releases that any test may register, independent of the network. */
class FakeReleases implements ReleaseSource {
  readonly #releases = new Map<string, SignedRelease>()

  /** Publishes a version, or the given release. */
  publish(release: string | SignedRelease): SignedRelease {
    const made = typeof release === 'string' ? signedRelease(release) : release
    this.#releases.set(made.version, made)
    return made
  }

  async find(version?: string) {
    const all = [...this.#releases.values()].filter((one) => !one.version.includes('-'))
    const found = version === undefined ? all.at(-1) : this.#releases.get(version)
    if (!found) throw new ReleaseFailure('absent', `There is no release ${version ?? ''}`)
    const { tag, manifest, signature, files } = found
    const file = async (name: string) => {
      const bytes = files.get(name)
      const url = `https://releases.example.com/${tag}/${name}`
      return bytes && { url, size: bytes.length }
    }
    return { tag, notes: null, manifest, signature, file }
  }
}

export const fakeReleases = new FakeReleases()
fakeReleases.publish('1.0.0')
