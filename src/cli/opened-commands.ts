import type { Command } from '@oclif/core/command'
import { api } from '../api.ts'
import { type Endpoint, entriesOf, routeOf } from '../core/endpoint.ts'
import { permissions as catalog } from '../core/permissions.ts'
import { printNote } from './print.ts'

type Holder = 'key' | 'workload'

const holders: Readonly<Record<Holder, string>> = { key: 'API keys', workload: 'CI jobs' }

/** The permission that an endpoint asks of API keys, or of CI jobs; undefined where it is not open to them. */
function permissionFor({ access }: Endpoint, by: Holder): string | undefined {
  // Both act within one organization.
  const isOpen = access.who === 'user' && access[by] === true && access.scopes.includes('organization')
  return isOpen ? access.permission : undefined
}

/** Whether jobs use a permission in files of configuration, and nowhere else. */
const isForFiles = (permission: string, by: Holder): boolean =>
  by === 'workload' &&
  entriesOf(api).some(
    ({ entry: { access } }) =>
      access.who === 'user' && access.workload === 'files' && access.permission === permission,
  )

/** Says which commands each permission of a new credential opens, and which opens none. */
export function printOpenedCommands(
  commands: readonly Command.Loadable[],
  wanted: readonly string[],
  by: Holder,
): void {
  const known = new Map(entriesOf(api).map(({ entry }) => [routeOf(entry), entry]))
  const open = commands.flatMap(({ id, hidden, ...command }) => {
    const { endpoints = [] } = command as { endpoints?: string[] }
    const entries = hidden ? [] : endpoints.flatMap((route) => known.get(route) ?? [])
    // What a command that changes something reads besides, such as its plan, does not open it.
    const changing = entries.filter(({ audit }) => audit !== undefined && 'resource' in audit)
    const asked = (changing.length > 0 ? changing : entries).flatMap(
      (entry) => permissionFor(entry, by) ?? [],
    )
    return asked.map((permission) => ({ name: id.replaceAll(':', ' '), permission }))
  })
  if (wanted.length === 0) printNote('It has no scopes, and opens no command')
  const isOpened = (permission: string) => open.some((one) => one.permission === permission)
  for (const permission of new Set(wanted.includes('*') ? catalog.filter(isOpened) : wanted)) {
    const opened = new Set(open.filter((one) => one.permission === permission).map(({ name }) => name))
    // `devices` is `devices list`.
    const shown = [...opened].filter((name) => !opened.has(`${name} list`)).sort()
    printNote(
      shown.length > 0
        ? `${permission} opens svc ${shown.join(', ')}`
        : isForFiles(permission, by)
          ? `${permission} opens no command of its own: svc config plan and apply use it`
          : `${permission} opens no command: nothing that needs it is open to ${holders[by]}`,
    )
  }
}
