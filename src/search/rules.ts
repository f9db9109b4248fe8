import { fold, isWordBreak } from '../core/fold.ts'
import { hasPermission } from '../core/permissions.ts'
import type { SearchResult } from './contract.ts'

/** Prevents one record type from crowding out the others. */
export const maxPerType = (limit: number): number => Math.min(Math.max(1, Math.ceil(limit / 4)), 8)

/** Rank of a match in folded text: 0 equal, 1 prefix, 2 prefix of a word, 3 substring; undefined for no match. */
export function rankOf(text: string, needle: string): 0 | 1 | 2 | 3 | undefined {
  if (text === needle) return 0
  if (text.startsWith(needle)) return 1
  let at = text.indexOf(needle)
  if (at === -1) return undefined
  if (isWordBreak(needle[0]!)) return 3
  for (; at !== -1; at = text.indexOf(needle, at + 1)) if (isWordBreak(text[at - 1]!)) return 2
  return 3
}

const pages: readonly SearchResult[] = [
  {
    id: 'settings-profile',
    type: 'settings',
    title: 'Profile settings',
    description: 'Manage your profile',
    href: '/settings/profile',
  },
  {
    id: 'settings-security',
    type: 'settings',
    title: 'Security settings',
    description: 'Manage MFA and account security',
    href: '/settings/security',
  },
  {
    id: 'settings-users',
    type: 'settings',
    title: 'User management',
    description: 'Manage users and roles',
    href: '/settings/users',
  },
]

/** Settings pages that contain `needle` (folded), best first; ties keep the order of `pages`, by title. */
export function findSettings(needle: string, permissions: ReadonlySet<string>): SearchResult[] {
  const ranked = pages.flatMap((page) => {
    if (page.id === 'settings-users' && !hasPermission(permissions, 'users:read')) return []
    const ranks = [page.title, page.description!].map((text) => rankOf(fold(text), needle) ?? 4)
    return ranks.some((rank) => rank < 4) ? [{ page, rank: Math.min(...ranks) }] : []
  })
  return ranked.sort((a, b) => a.rank - b.rank).map(({ page }) => page)
}

/** The search result of a device. */
export function deviceResult(device: {
  id: string
  hostname: string
  display_name: string | null
  status: string
  last_user: string | null
}): SearchResult {
  const { id, hostname, display_name: displayName, status, last_user: lastUser } = device
  const title = displayName || hostname || 'Unknown device'
  const facts = [hostname === title ? '' : hostname, status, lastUser ?? '']
  return { id, type: 'devices', title, description: facts.filter((fact) => fact !== '').join(' · ') }
}
