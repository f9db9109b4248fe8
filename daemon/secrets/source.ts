import { statSync } from 'node:fs'
import { type Config, existingConfig, type Flags, secretSources } from '../config.ts'

/** Where a running service reads its settings again. */
export type SettingsSource = {
  /** @throws SetupError */
  read(): Config
  /** Changes with each file that settings come from: its time, size and number, of which a replaced file has another one. */
  stamp(): string
  /** The stamp from before the service read its settings for the first time. */
  first: string
}

export function settingsSource(flags: Flags): SettingsSource {
  const stamp = () => secretSources(flags).map(stampOf).join('\n')
  return { read: () => existingConfig(flags), stamp, first: stamp() }
}

function stampOf(file: string): string {
  try {
    const { mtimeNs, size, ino } = statSync(file, { bigint: true })
    return `${file} ${mtimeNs} ${size} ${ino}`
  } catch (error) {
    return `${file} ${(error as NodeJS.ErrnoException).code}`
  }
}
