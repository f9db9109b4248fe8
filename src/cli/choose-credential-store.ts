import { askYesNo } from './ask.ts'
import type { StoreKind } from './config-file.ts'
import { probeKeychain } from './credential-store.ts'
import { usageError } from './exit-codes.ts'
import { printNote } from './print.ts'
import { parseStoreKind, type Settings } from './settings.ts'

export type ChosenStore = {
  kind: StoreKind
  /** Why the session will not be stored, when the user did not choose that. */
  notKeptReason?: string
}

/**
 * Where a new session is stored: as requested, else the remembered choice, else the keychain if it
 * answers, else a file if the user agrees, else nowhere.
 */
export async function chooseStore(
  settings: Settings,
  flag: string | undefined,
  interactive: boolean,
): Promise<ChosenStore> {
  const asked =
    flag === undefined
      ? settings.store
      : { value: parseStoreKind(flag), source: '--store', from: 'flag' as const }
  if (asked.value && asked.value !== 'keychain') return { kind: asked.value }
  const probe = await probeKeychain()
  if (probe.works) return { kind: 'keychain' }
  if (asked.value === 'keychain' && asked.from !== 'context') {
    throw usageError(
      `${probe.reason} (requested by ${asked.source})`,
      '--store file stores the session in a file instead',
    )
  }
  if (interactive) {
    printNote(`No keychain answers on this machine: ${probe.reason}`)
    if (await askYesNo('Store the session in a file that only you can read, unencrypted?'))
      return { kind: 'file' }
  }
  return { kind: 'memory', notKeptReason: probe.reason }
}
