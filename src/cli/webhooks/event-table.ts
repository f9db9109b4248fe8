import { eventGroups } from '../../core/event-types.ts'

const head = '| Type | data |\n|---|---|\n'

/** svc-webhooks(7) with the table of event types as the code has them. */
export function withEventTable(page: string): string {
  const begin = page.indexOf(head)
  const end = page.indexOf('\n\n', begin)
  if (begin < 0 || end < 0) throw new Error('svc-webhooks(7) has no table of event types')
  const rows = eventGroups.map(({ types, data }) => `| ${types.join(', ')} | ${data} |`)
  return [page.slice(0, begin), head, rows.join('\n'), page.slice(end)].join('')
}
