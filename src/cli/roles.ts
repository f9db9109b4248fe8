import type { z } from 'zod'
import { api } from '../api.ts'
import { ApiError } from '../core/client.ts'
import { entriesOf } from '../core/endpoint.ts'
import { actionNames, pairOf, resourceNames } from '../core/permissions.ts'
import { normalizePath } from '../core/routes.ts'
import { didYouMean } from '../core/suggest.ts'
import type { Explanation, permissions } from '../identity/permissions/contract.ts'
import type { EffectivePermissions } from '../identity/roles/contract.ts'
import type { ParsedInput } from './command-view.ts'
import { CliError, exitCodes, usageError } from './exit-codes.ts'
import { oneOf } from './flags.ts'
import { type Output, rowPrinter, writeJson } from './print.ts'
import { escapeToOneLine } from './table.ts'

type Reply = Record<string, unknown>

/** The roles of an inheritance chain as a tree, with the permissions of each. */
export function formatEffective(reply: Reply): string {
  const { roleId, roleName, forceMfa, inheritanceChain, permissions } = reply as EffectivePermissions
  const chain = [{ id: roleId, name: roleName }, ...inheritanceChain]
  const lines = chain.flatMap(({ id, name }, depth) => {
    const indent = '   '.repeat(Math.max(0, depth - 1))
    const head = depth === 0 ? escapeToOneLine(name) : `${indent}└─ inherits from ${escapeToOneLine(name)}`
    const own = permissions.filter(({ sourceRoleId }) => sourceRoleId === id)
    const below = '   '.repeat(depth)
    const isLast = depth === chain.length - 1
    return [
      head,
      ...own.map(({ resource, action }, i) => {
        const turn = isLast && i === own.length - 1 ? '└─' : '├─'
        return `${below}${turn} ${resource}:${action}`
      }),
    ]
  })
  return `${lines.join('\n')}\n${forceMfa ? '\nUsers of this role have to set up an authenticator first\n' : ''}`
}

/** A verdict as a person reads it. */
export function formatVerdict(reply: Reply): string {
  const { allowed, reason, hint, status, code } = reply as Explanation
  const refusal = status === null ? '' : ` (${status} ${code})`
  return `${allowed ? 'yes' : 'no'}: ${escapeToOneLine(reason)}${refusal}\n${hint === null ? '' : `hint: ${hint}\n`}`
}

/** `devices:read` is `read devices`. @throws usage */
export async function readPermission(args: ParsedInput['args']): Promise<ParsedInput['args']> {
  const said = String(args.action)
  const asPair = args.resource === undefined && said.includes(':')
  const { action, resource } = asPair ? pairOf(said) : { action: said, resource: args.resource }
  if (resource === undefined) throw usageError('Missing RESOURCE', 'svc can-i read devices, or devices:read')
  return {
    action: await oneOf('action', [...actionNames])(action),
    resource: await oneOf('resource', [...resourceNames])(String(resource)),
  }
}

export const isAllowed = (reply: Reply): boolean => reply.allowed === true

/** Adds the most similar route to a route-not-found failure. */
export function withRouteHint(failure: unknown, { args }: ParsedInput): unknown {
  const [method, path] = [String(args.method), String(args.path)]
  const lost =
    failure instanceof ApiError && failure.status === 404 && failure.message.startsWith('There is no route')
  if (!lost) return failure
  const routes = entriesOf(api).map(({ entry }) => `${entry.method} ${normalizePath(entry.path)}`)
  const asked = `${method} ${normalizePath(path)}`
  const others = routes.filter((route) => route.split(' ')[1] === asked.split(' ')[1])
  const hint = others.length > 0 ? `there is ${others.join(', ')}` : didYouMean(asked, routes)
  return new CliError(failure.message, {
    exit: exitCodes.notFound,
    code: 'not_found',
    ...(hint !== undefined && { hint }),
  })
}

type Catalog = z.output<typeof permissions.catalog.reply>

export async function printCatalog(output: Output, reply: Catalog, columns: string[]): Promise<void> {
  if (output.format === 'json' && output.columns === undefined) return writeJson(output, reply)
  const rows = reply.permissions.map((one) => ({ ...one, permission: `${one.resource}:${one.action}` }))
  const printer = rowPrinter(output, columns)
  await printer.rows(rows)
  await printer.end((kept) => ({ permissions: kept }))
}
