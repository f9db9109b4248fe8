import {
  type ColumnDataType,
  type CreateTableBuilder,
  type Expression,
  type Kysely,
  type RawBuilder,
  sql,
} from 'kysely'
import { fold } from '../core/fold.ts'
import type { Dialect } from './db.ts'
import { postgresTrigrams, sqliteTrigrams } from './search/trigrams.ts'

type ColumnType = ColumnDataType | RawBuilder<unknown>

/** A migration outlives the tables it was written for, so it does not know them. */
// biome-ignore lint/suspicious/noExplicitAny: this is how Kysely spells a database of unknown tables
export type AnyDb = Kysely<any>

/**
 * An index of a migration that exports `indexes` instead of `up`. On Postgres it is built while others write to the table,
 * for which there can be no transaction: so such a migration does nothing that could not be begun again.
 */
export type Index = {
  name: string
  table: string
  /** Names of columns, or SQL such as `created_at desc`. */
  columns: readonly string[]
  unique?: boolean
  /** A SQL condition. */
  where?: string
}

/** What a migration builds with: columns that hand back the same JavaScript values on both databases. */
export type Schema = {
  db: AnyDb
  dialect: Dialect
  /** Ids, times, JSON and names; ordered by bytes on both databases. */
  text: ColumnType
  /** 32 bits; flags are 0 and 1. */
  integer: ColumnType
  /** Exact up to 2^53. */
  bigint: ColumnType
  real: ColumnType
  /** What columns ending in `_key` hold of a text. */
  fold(text: string): string
  /** Adds a primary key that the database counts up. Numbers are never used twice but may have gaps. */
  counter<B extends CreateTableBuilder<string, string>>(table: B, name: string): B
  /**
   * Triggers that refuse to change or delete a row of the table. `deletable` is a SQL condition over
   * `old` that lets some rows go after all (a retention limit kept in another table).
   */
  appendOnly(table: string, options?: { message?: string; deletable?: string }): Promise<void>
  /** Takes the triggers of `appendOnly` away, for a migration that puts others in their place. */
  liftAppendOnly(table: string): Promise<void>
  /** Triggers that refuse to delete a row of the table, and an update unless `allowed`, a SQL condition over `old` and `new`. */
  growing(table: string, options: { message: string; allowed: string }): Promise<void>
  /**
   * A trigger that refuses a row which does not name the checksum of the row before it in its chain. With
   * a unique (chain, seq) no chain can fork, without an index over checksums, whose pages a random value
   * each would touch. It takes the place of the one before.
   */
  linked(table: string, columns: ChainColumns): Promise<void>
  /** Keeps an index of which rows hold which three letters in a row in these folded columns (trigrams.ts). */
  trigrams(table: string, columns: readonly string[]): Promise<void>
}

type ChainColumns = { chain: string; seq: string; checksum: string; previous: string }

/**
 * Whether the row before the new one, if there is one, is not the one that the new one names. It is asked for by its
 * order, so that the index of that order is taken, whatever the planner knows of the table.
 */
const isUnlinked = (table: string, { chain, seq, checksum, previous }: ChainColumns) => sql`(
  select before.${sql.id(checksum)} from ${sql.table(table)} as before
  where before.${sql.id(chain)} = new.${sql.id(chain)} and before.${sql.id(seq)} < new.${sql.id(seq)}
  order by before.${sql.id(seq)} desc limit 1
) <> new.${sql.id(previous)}`
const unlinked = 'the entry does not follow the one before it'

export function schemaFor(db: AnyDb, dialect: Dialect): Schema {
  return dialect === 'sqlite' ? sqliteSchema(db) : postgresSchema(db)
}

const defaultMessage = 'audit log is append-only'

function sqliteSchema(db: AnyDb): Schema {
  return {
    db,
    dialect: 'sqlite',
    text: 'text',
    integer: 'integer',
    bigint: 'integer',
    real: 'real',
    fold,
    counter: (table, name) =>
      table.addColumn(name, 'integer', (c) => c.primaryKey().autoIncrement()) as typeof table,
    appendOnly: async (table, { message = defaultMessage, deletable } = {}) => {
      for (const change of ['update', 'delete']) {
        const when = change === 'delete' && deletable ? sql`when not (${sql.raw(deletable)})` : sql``
        await sql`create trigger ${sql.id(`${table}_no_${change}`)} before ${sql.raw(change)}
          on ${sql.table(table)} ${when} begin select raise(abort, ${sql.lit(message)}); end`.execute(db)
      }
    },
    liftAppendOnly: async (table) => {
      for (const change of ['update', 'delete']) {
        await sql`drop trigger ${sql.id(`${table}_no_${change}`)}`.execute(db)
      }
    },
    growing: async (table, { message, allowed }) => {
      for (const change of ['update', 'delete']) {
        const when = change === 'update' ? sql`when not (${sql.raw(allowed)})` : sql``
        await sql`create trigger ${sql.id(`${table}_no_${change}`)} before ${sql.raw(change)}
          on ${sql.table(table)} ${when} begin select raise(abort, ${sql.lit(message)}); end`.execute(db)
      }
    },
    linked: async (table, columns) => {
      await sql`drop trigger if exists ${sql.id(`${table}_linked`)}`.execute(db)
      // Not abort, which undoes the insert: before it nothing has changed.
      await sql`create trigger ${sql.id(`${table}_linked`)} before insert on ${sql.table(table)}
        when ${isUnlinked(table, columns)} begin select raise(fail, ${sql.lit(unlinked)}); end`.execute(db)
    },
    trigrams: (table, columns) => sqliteTrigrams(db, table, columns),
  }
}

function postgresSchema(db: AnyDb): Schema {
  return {
    db,
    dialect: 'postgres',
    text: sql`text collate "C"`,
    integer: 'integer',
    bigint: 'bigint',
    real: 'double precision',
    fold,
    counter: (table, name) =>
      table.addColumn(name, 'bigint', (c) => c.primaryKey().generatedByDefaultAsIdentity()) as typeof table,
    appendOnly: async (table, { message = defaultMessage, deletable } = {}) => {
      const exception = deletable
        ? sql`if tg_op = 'DELETE' then if (${sql.raw(deletable)}) then return old; end if; end if;`
        : sql``
      await refuseInPostgres(db, table, message, exception)
    },
    liftAppendOnly: async (table) => {
      for (const trigger of [`${table}_no_change`, `${table}_no_truncate`]) {
        await sql`drop trigger ${sql.id(trigger)} on ${sql.table(table)}`.execute(db)
      }
      await sql`drop function ${sql.id(`${table}_refuse_change`)}()`.execute(db)
    },
    growing: (table, { message, allowed }) =>
      refuseInPostgres(
        db,
        table,
        message,
        sql`if tg_op = 'UPDATE' then if (${sql.raw(allowed)}) then return new; end if; end if;`,
      ),
    linked: async (table, columns) => {
      const check = `${table}_check_link`
      // Its plan is kept for as long as the connection, also when it was made for a table that was still small.
      await sql`create or replace function ${sql.id(check)}() returns trigger language plpgsql set enable_seqscan = off as ${dollarQuoted(
        sql`begin if ${isUnlinked(table, columns)} then raise exception ${sql.lit(unlinked)}; end if; return new; end`,
      )}`.execute(db)
      await sql`create or replace trigger ${sql.id(`${table}_linked`)} before insert
        on ${sql.table(table)} for each row execute function ${sql.id(check)}()`.execute(db)
    },
    trigrams: (table, columns) => postgresTrigrams(db, table, columns),
  }
}

/** Triggers against every change and truncation, but for what `exception` lets through. */
async function refuseInPostgres(
  db: AnyDb,
  table: string,
  message: string,
  exception: RawBuilder<unknown>,
): Promise<void> {
  const refusal = `${table}_refuse_change`
  // Its plan is kept for as long as the connection, also when it was made for tables that were still small.
  await sql`create function ${sql.id(refusal)}() returns trigger language plpgsql set enable_seqscan = off as ${dollarQuoted(
    sql`begin ${exception} raise exception ${sql.lit(message.replaceAll('%', '%%'))}; end`,
  )}`.execute(db)
  await sql`create trigger ${sql.id(`${table}_no_change`)} before update or delete
    on ${sql.table(table)} for each row execute function ${sql.id(refusal)}()`.execute(db)
  await sql`create trigger ${sql.id(`${table}_no_truncate`)} before truncate
    on ${sql.table(table)} for each statement execute function ${sql.id(refusal)}()`.execute(db)
}

function dollarQuoted(body: Expression<unknown>) {
  return sql`$body$ ${body} $body$`
}
