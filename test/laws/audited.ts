import type { z } from 'zod'
import type { ChainEntry } from '../../src/audit/chain.ts'
import { sealPending } from '../../src/audit/outbox.ts'
import type { TestService } from '../harness.ts'
import { fieldsOf } from './fields.ts'

/** Returns a function that gives the audit entries of all chains since its last call, in order. */
export async function newEntries({ storage }: TestService): Promise<() => Promise<ChainEntry[]>> {
  const known = new Set<string>()
  const look = async (): Promise<ChainEntry[]> => {
    await sealPending(storage)
    const rows = await storage.read
      .selectFrom('audit_logs')
      .select(['id', 'canonical'])
      .orderBy('timestamp')
      .orderBy('id')
      .execute()
    const fresh = rows.filter(({ id }) => !known.has(id))
    for (const { id } of fresh) known.add(id)
    return fresh.map(({ canonical }) => JSON.parse(canonical) as ChainEntry)
  }
  await look()
  return look
}

/** The texts in a value that its schema marks as secret. */
export function secretsOf(schema: z.ZodType | undefined, value: unknown): string[] {
  const paths = fieldsOf(schema).flatMap(({ path, secret, leaf }) => (secret && leaf ? [path] : []))
  return paths.flatMap((path) => textsAt(value, path))
}

function textsAt(value: unknown, [step, ...rest]: string[]): string[] {
  if (step === undefined) return typeof value === 'string' ? [value] : []
  if (value === null || typeof value !== 'object') return []
  if (step === '0' && Array.isArray(value)) return value.flatMap((item) => textsAt(item, rest))
  return textsAt((value as Record<string, unknown>)[step], rest)
}
