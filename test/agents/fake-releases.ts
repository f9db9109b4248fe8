import { ReleaseFailure, type ReleaseSource } from '../../src/agents/versions/ports.ts'
import { type SignedRelease, signedRelease } from './signed-release.ts'

/** Releases that every test may register, whatever else of the outside there is. */
class FakeReleases implements ReleaseSource {
  readonly #releases = new Map<string, SignedRelease>()

  /** Puts a version there, or what it is given. */
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
