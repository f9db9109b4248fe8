import { z } from 'zod'
import { isJsonObject } from './json.ts'
import { containing, mapParts, unwrap } from './schema.ts'

/* Objects of any form, such as settings and contacts: people may keep a secret in them under any name. */

/** Whether what has this name in a free object is taken for a secret. */
export const isSecretName = (name: string): boolean =>
  /pass(word|phrase)|secret|token|credential|private_?key|api_?key/i.test(name)

export const isFreeObject = (schema: z.ZodType): boolean => {
  const inner = unwrap(schema)
  return inner instanceof z.ZodRecord && inner.valueType instanceof z.ZodUnknown
}

/** A free object, or a part of it, without the values of what is taken for a secret. */
export function hideSecrets(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(hideSecrets)
  if (!isJsonObject(value)) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, hidden(key, item)]))
}

const hidden = (name: string, value: unknown): unknown =>
  value !== null && isSecretName(name) ? '********' : hideSecrets(value)

/** Whether an object has fields of any name beside those of its schema. */
const isOpenObject = (schema: z.ZodType): boolean => {
  const inner = unwrap(schema)
  return inner instanceof z.ZodObject && inner.def.catchall instanceof z.ZodUnknown
}

const isFree = (schema: z.ZodType): boolean => isFreeObject(schema) || isOpenObject(schema)
const holdsFree = containing(isFree)

/** The same for the free objects in a value of a schema. */
export function hideSecretsIn(schema: z.ZodType | undefined, value: unknown): unknown {
  if (schema === undefined || value === null || typeof value !== 'object') return value
  if (isFreeObject(schema)) return hideSecrets(value)
  if (!isFree(schema) && !holdsFree(schema)) return value
  return mapParts(schema, value, (part, item, key = '') =>
    part === undefined ? hidden(key, item) : hideSecretsIn(part, item),
  )
}
