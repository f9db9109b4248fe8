import { join } from 'node:path'
import { z } from 'zod'
import { parseTrustKey, type TrustKey } from '../../agents/versions/manifest.ts'
import { compareVersions } from '../../agents/versions/semver.ts'
import { safeParse } from '../../core/schema.ts'
import { readJson, replaceFile } from '../durable.ts'

type NamedKey = { publicKeyB64: string; validFrom?: string | null }

const TrustState = z.object({
  /** The first keys that the service named. It cannot replace them later, so a compromised service cannot either. */
  pinned: z.array(z.string()).default([]),
  /** Keys that a manifest announced, each with the id of the key that signed that manifest. */
  learned: z.array(z.object({ key: z.string(), by: z.string() })).default([]),
  /** The highest minimumVersion of a verified manifest. */
  floor: z.string().optional(),
})

/**
 * Trusted release keys and the minimum version, in trust.json. Keys configured by an operator replace the pinned
 * ones.
 */
export function trustStore(stateDir: string, operators: () => readonly string[] | undefined) {
  const file = join(stateDir, 'trust.json')
  const loadState = () => safeParse(TrustState, readJson(file)).data ?? TrustState.parse({})
  const save = (trust: z.output<typeof TrustState>): void =>
    replaceFile(file, `${JSON.stringify(trust, null, 2)}\n`)

  return {
    keys(): TrustKey[] {
      const { pinned, learned } = loadState()
      const keys = keysOf(operators() ?? pinned)
      // In the order of announcement, so that each follows the key that signed for it.
      for (const { key, by } of learned) {
        if (keys.some(({ keyId }) => keyId === by)) keys.push(...keysOf([key]))
      }
      return keys
    },

    /** Pins the keys that the service names, the first time that it names any. */
    pin(named: readonly NamedKey[]): void {
      const keys = keysOf(named.map(({ publicKeyB64 }) => publicKeyB64))
      const trust = loadState()
      if (trust.pinned.length > 0 || keys.length === 0) return
      save({ ...trust, pinned: keys.map(({ publicKeyB64 }) => publicKeyB64) })
    },

    /** The lowest version that may be installed, whoever offers a lower one; undefined: no limit. */
    floor: (): string | undefined => loadState().floor,

    /** Raises the minimum version; a lower one, or none, changes nothing. @throws when it cannot be written */
    raise(minimumVersion: string | undefined): void {
      const { floor, ...trust } = loadState()
      if (minimumVersion === undefined) return
      if (floor !== undefined && compareVersions(minimumVersion, floor) <= 0) return
      save({ ...trust, floor: minimumVersion })
    },

    /** Stores keys announced by a manifest that was signed with the key `by`. */
    learn(announced: readonly NamedKey[], by: string): void {
      const trust = loadState()
      const isNew = (key: string): boolean => !trust.learned.some((one) => one.key === key && one.by === by)
      const keys = keysOf(announced.map(({ publicKeyB64 }) => publicKeyB64))
      const learned = keys.map(({ publicKeyB64 }) => publicKeyB64).filter(isNew)
      if (learned.length === 0) return
      save({ ...trust, learned: [...trust.learned, ...learned.map((key) => ({ key, by }))].slice(-50) })
    },
  }
}
export type TrustStore = ReturnType<typeof trustStore>

/** The valid keys. */
function keysOf(texts: readonly string[]): TrustKey[] {
  return texts.flatMap((text) => {
    try {
      return [parseTrustKey(text)]
    } catch {
      // A key of another kind, of a newer service: it verifies nothing here.
      return []
    }
  })
}
