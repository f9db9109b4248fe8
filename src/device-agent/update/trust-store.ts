import { join } from 'node:path'
import { z } from 'zod'
import { parseTrustKey, type TrustKey } from '../../agents/versions/manifest.ts'
import { compareVersions } from '../../agents/versions/semver.ts'
import { safeParse } from '../../core/schema.ts'
import { readJson, replaceFile } from '../durable.ts'

type NamedKey = { publicKeyB64: string; validFrom?: string | null }

const TrustState = z.object({
  /** The keys that the service named first. It cannot exchange them later, whoever has it in hand then. */
  pinned: z.array(z.string()).default([]),
  /** Keys that a manifest announced, each with the key that had signed it. */
  learned: z.array(z.object({ key: z.string(), by: z.string() })).default([]),
  /** The highest minimumVersion that a believed manifest had. */
  floor: z.string().optional(),
})

/** The keys that releases have to be signed with, and the version that none may be below, in trust.json. Keys that an operator gave count instead of pinned ones. */
export function trustStore(stateDir: string, operators: () => readonly string[] | undefined) {
  const file = join(stateDir, 'trust.json')
  const loadState = () => safeParse(TrustState, readJson(file)).data ?? TrustState.parse({})
  const save = (trust: z.output<typeof TrustState>): void =>
    replaceFile(file, `${JSON.stringify(trust, null, 2)}\n`)

  return {
    keys(): TrustKey[] {
      const { pinned, learned } = loadState()
      const keys = keysOf(operators() ?? pinned)
      // In the order they were announced in, so that each comes after the key that vouches for it.
      for (const { key, by } of learned) {
        if (keys.some(({ keyId }) => keyId === by)) keys.push(...keysOf([key]))
      }
      return keys
    },

    /** What the service names is believed once: the first time that it names any. */
    pin(named: readonly NamedKey[]): void {
      const keys = keysOf(named.map(({ publicKeyB64 }) => publicKeyB64))
      const trust = loadState()
      if (trust.pinned.length > 0 || keys.length === 0) return
      save({ ...trust, pinned: keys.map(({ publicKeyB64 }) => publicKeyB64) })
    },

    /** No version below this one is gone to, whoever offers it; undefined: any. */
    floor: (): string | undefined => loadState().floor,

    /** It only rises: a release that says less, or nothing, leaves it as it is. @throws when it cannot be written */
    raise(minimumVersion: string | undefined): void {
      const { floor, ...trust } = loadState()
      if (minimumVersion === undefined) return
      if (floor !== undefined && compareVersions(minimumVersion, floor) <= 0) return
      save({ ...trust, floor: minimumVersion })
    },

    /** Keys that a manifest announced which was signed with this one. */
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

/** Those that are keys. */
function keysOf(texts: readonly string[]): TrustKey[] {
  return texts.flatMap((text) => {
    try {
      return [parseTrustKey(text)]
    } catch {
      return []
    }
  })
}
