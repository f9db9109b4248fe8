import { fold } from '../core/fold.ts'

/** The folded copies of a device's names, for whoever writes one of them. */
export function nameKeys(names: { hostname: string; displayName: string | null }) {
  const { hostname, displayName } = names
  return { hostname_key: fold(hostname), display_name_key: displayName === null ? null : fold(displayName) }
}
