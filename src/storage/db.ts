import type { Kysely } from 'kysely'
import type { Tables } from './tables.ts'

/** A place to run queries: plain reads, heavy reads, or the transaction of one write. */
export type Db = Kysely<Tables>

export type Dialect = 'sqlite' | 'postgres'
