import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { safeParse } from '../core/schema.ts'
import { readJson, replaceFile } from './durable.ts'

/** Local settings of the agent: config.json in its state directory. Unknown fields are preserved. */
const Settings = z.looseObject({
  autoUpdate: z.boolean().default(true),
  /** Overrides the keys that the service names: Ed25519, in base64 or PEM. */
  trustKeys: z.array(z.string()).optional(),
  /** Time that a new version has until its first heartbeat. */
  trialSeconds: z.number().min(1).max(3600).default(180),
  /** Longest time without a message from the agent to its watchdog. */
  silenceSeconds: z.number().min(1).max(86_400).default(300),
})
export type AgentSettings = z.output<typeof Settings>

export type SettingsStore = {
  load(): AgentSettings
  /** Takes effect until this process ends even when it cannot be written. @throws then */
  setAutoUpdate(wanted: boolean): void
}

const file = (stateDir: string): string => join(stateDir, 'config.json')

export function settingsStore(stateDir: string): SettingsStore {
  let unwritten: boolean | undefined
  const stored = (): AgentSettings | undefined => {
    if (!existsSync(file(stateDir))) return Settings.parse({})
    return safeParse(Settings, readJson(file(stateDir))).data
  }
  return {
    load() {
      // An unreadable file is treated as a prohibition: no updates, and no trusted keys.
      const settings = stored() ?? Settings.parse({ autoUpdate: false, trustKeys: [] })
      return unwritten === undefined ? settings : { ...settings, autoUpdate: unwritten }
    },
    setAutoUpdate(wanted) {
      unwritten = wanted
      const settings = stored()
      if (!settings) throw new Error(`${file(stateDir)} is not readable; correct or remove it`)
      if (settings.autoUpdate !== wanted) {
        const said = { ...(readJson(file(stateDir)) as object | undefined), autoUpdate: wanted }
        replaceFile(file(stateDir), `${JSON.stringify(said, null, 2)}\n`)
      }
      unwritten = undefined
    },
  }
}
