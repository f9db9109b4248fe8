import { z } from 'zod'

/** An object of telemetry: unknown fields and invalid values are dropped one by one, the rest is stored. */
export function lenient<S extends z.core.$ZodLooseShape>(shape: S) {
  const optional = Object.fromEntries(
    Object.entries(shape).map(([key, schema]) => [key, (schema as z.ZodType).optional().catch(undefined)]),
  )
  return z.object(optional as { [K in keyof S]: z.ZodCatch<z.ZodOptional<S[K]>> })
}

/** A list of telemetry objects: items that are not objects are dropped, and those after `max` items. */
export function lenientList<S extends z.ZodType>(item: S, max: number) {
  return z
    .array(item.nullable().catch(null))
    .transform((items) => items.filter((one): one is NonNullable<typeof one> => one !== null).slice(0, max))
    .optional()
    .catch(undefined)
}
