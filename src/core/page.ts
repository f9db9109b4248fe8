import { z } from 'zod'

const whole = z.coerce.number({ error: 'must be a number' }).int('must be a whole number')

/** `page` and `limit`, clamped rather than refused when out of range (spec, "Tenancy"). */
export const pageQuery = (limits: { default: number; max: number } = { default: 50, max: 100 }) => ({
  page: whole
    .transform((n) => Math.max(1, n))
    .prefault(1)
    .describe('Page to show, from 1'),
  limit: whole
    .transform((n) => Math.min(Math.max(1, n), limits.max))
    .prefault(limits.default)
    .describe(`Rows on a page, at most ${limits.max}`),
})

/** `true` or `false` in a query string. */
export const flag = z
  .enum(['true', 'false'], { error: 'must be true or false' })
  .transform((text) => text === 'true')

export type PageQuery = { page: number; limit: number }
export type Page<T> = { data: T[]; pagination: { page: number; limit: number; total: number } }

export const pageOf = <S extends z.ZodType>(item: S) =>
  z.object({
    data: z.array(item),
    pagination: z.object({ page: z.int(), limit: z.int(), total: z.int() }),
  })

export const offsetOf = ({ page, limit }: PageQuery): number => (page - 1) * limit

export function toPage<T>(data: T[], total: number, { page, limit }: PageQuery): Page<T> {
  return { data, pagination: { page, limit, total } }
}

/** How many there are in all, when the page itself says so: it is not full, and not beyond the end. */
export function totalFrom(rows: number, query: PageQuery): number | undefined {
  const offset = offsetOf(query)
  return rows < query.limit && (rows > 0 || offset === 0) ? offset + rows : undefined
}
