import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import type { Contract, Endpoint } from '../../src/core/endpoint.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { productSources, root } from './imports.ts'

/** Compares with a file beside the tests; UPDATE_GOLDEN=1 (npm run golden) writes it instead. */
export function expectGolden(file: string, text: string): void {
  const path = join(root, 'test/laws', file)
  if (process.env.UPDATE_GOLDEN) writeFileSync(path, text)
  const golden = existsSync(path) ? readFileSync(path, 'utf8') : ''
  expect(text, `${file} is no longer what it was: look at the difference, then npm run golden`).toBe(golden)
}

/** Every route with its access rule, one per line. */
export function routeTable(contract: Contract): string {
  const entries = entriesOf(contract).map(({ name, entry }) => [
    entry.method,
    `/api/v1${entry.path}`,
    accessOf(entry),
    name,
  ])
  const rows = [...entries, ...routesBeside()].sort((a, b) =>
    `${a[1]} ${a[0]}` < `${b[1]} ${b[0]}` ? -1 : 1,
  )
  const widths = [0, 1, 2].map((i) => Math.max(...rows.map((row) => row[i]!.length)))
  return rows.map((row) => `${row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join('  ')}\n`).join('')
}

function accessOf({ access }: Endpoint): string {
  if (access.who !== 'user') return access.who
  const { permission, scopes, mfa, whileEnrolling, wholePartner, wholeOrganization, key, workload } = access
  const notes = [
    permission ?? 'any user',
    scopes.length === 3 ? 'every scope' : scopes.join('+'),
    mfa && 'factor',
    whileEnrolling && 'while enrolling',
    wholePartner && 'whole partner',
    wholeOrganization && 'whole organization',
    key && 'or key',
    workload && (workload === 'files' ? 'or workload in files' : 'or workload'),
  ]
  return notes.filter(Boolean).join(', ')
}

/** Routes of the daemon outside the contract, all listed explicitly. */
function routesBeside(): string[][] {
  return productSources()
    .filter(({ path }) => path.startsWith('daemon/'))
    .flatMap(({ path, text }) =>
      [...text.matchAll(/\bapp\.(get|post|put|patch|delete|all)\(\s*'([^']+)'/g)].map(
        ([, method = '', url = '']) => [method.toUpperCase(), url, 'public', path],
      ),
    )
}
