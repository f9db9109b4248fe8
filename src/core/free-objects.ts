import { z } from 'zod'
import { isJsonObject } from './json.ts'
import { unwrap } from './schema.ts'

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

/** The same for the free objects in a value of a schema. */
export function hideSecretsIn(schema: z.ZodType | undefined, value: unknown): unknown {
  if (schema === undefined || value === null || typeof value !== 'object') return value
  if (isFreeObject(schema)) return hideSecrets(value)
  const inner = unwrap(schema)
  if (inner instanceof z.ZodArray && Array.isArray(value))
    return value.map((item) => hideSecretsIn(inner.element as z.ZodType, item))
  if (!(inner instanceof z.ZodObject)) return value
  const shape = inner.shape as Record<string, z.ZodType>
  // Some have fields of any name beside those of the schema.
  const shown = (key: string, item: unknown) =>
    shape[key] === undefined ? hidden(key, item) : hideSecretsIn(shape[key], item)
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, shown(key, item)]))
}
