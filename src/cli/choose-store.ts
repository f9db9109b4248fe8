import { askYesNo } from './ask.ts'
import { usage } from './exit.ts'
import { say } from './print.ts'
import type { StoreKind } from './profile.ts'
import { type Settings, storeNamed } from './settings.ts'
import { probeKeychain } from './store.ts'

export type ChosenStore = {
  kind: StoreKind
  /** Why the session will not be kept although nobody asked for that. */
  unkept?: string
}

/**
 * Where a new session goes: what was asked for, the remembered choice, the keychain when it
 * answers, a file only when someone agrees, else nowhere.
 */
export async function chooseStore(
  settings: Settings,
  flag: string | undefined,
  attended: boolean,
): Promise<ChosenStore> {
  const asked =
    flag === undefined
      ? settings.store
      : { value: storeNamed(flag), source: '--store', from: 'flag' as const }
  if (asked.value === 'file' && asked.from !== 'context') say(fileWarning)
  if (asked.value && asked.value !== 'keychain') return { kind: asked.value }
  const probe = await probeKeychain()
  if (probe.works) return { kind: 'keychain' }
  if (asked.value === 'keychain' && asked.from !== 'context') {
    throw usage(
      `${probe.reason} (asked for by ${asked.source})`,
      '--store file keeps the session in a file instead',
    )
  }
  if (attended) {
    say(probe.reason)
    if (await askYesNo('Keep the session in a file that only you can read, not encrypted?')) {
      say(fileWarning)
      return { kind: 'file' }
    }
  }
  return { kind: 'memory', unkept: probe.reason }
}

const fileWarning =
  'Warning: the session will be kept in a file, mode 0600 and not encrypted; --store keychain is safer'
