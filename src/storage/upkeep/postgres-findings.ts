import { formatBytes } from '../../core/byte-size.ts'
import { type Finding, failed, passed, pluralize, warning } from '../../core/finding.ts'
import { check } from './check.ts'
import type { PostgresUpkeep, Slot, Statement } from './postgres.ts'

const mebi = 2 ** 20

/** An inactive slot of less belongs to a standby that restarts. */
const maxInactiveBytes = 64 * mebi
const maxSlotBytes = 10 * 1024 * mebi

export const postgresFindings = (upkeep: PostgresUpkeep): Finding[] => [
  ...statements(upkeep.statements),
  ...tables(upkeep),
  ...indexes(upkeep),
  ...transactions(upkeep.transactionAge),
  ...upkeep.slots.flatMap(slot),
  ...extensions(upkeep),
]

function statements(found: readonly Statement[] | undefined): Finding[] {
  if (found === undefined) {
    return [passed(check, 'Statements are not measured by the database: pg_stat_statements is not there')]
  }
  return found.map(({ text, calls, meanMs, totalMs }) =>
    warning(check, {
      message: `A statement takes ${Math.round(meanMs)} ms on average (${pluralize(calls, 'call')}, ${Math.round(totalMs / 1000)} s in all): ${shortened(text)}`,
      reason: 'Whoever causes it waits as long, and it occupies a connection of the pool.',
      remedy: 'run analyze; if it stays slow, look at its plan: explain (generic_plan) and its text',
    }),
  )
}

const shortened = (text: string): string => (text.length > 200 ? `${text.slice(0, 200)}…` : text)

function tables({ scanned, unanalyzed, dead }: PostgresUpkeep): Finding[] {
  return [
    ...scanned.map(({ table, rows, scans }) =>
      warning(check, {
        message: `${table} (${pluralize(rows, 'row')}) was read from end to end ${scans} times.`,
        reason: 'Such a read takes longer with every row, and displaces other tables from memory.',
        remedy: `analyze ${quoted(table)}; and see which statements read it, in pg_stat_statements`,
      }),
    ),
    ...unanalyzed.map(({ table, rows }) =>
      warning(check, {
        message: `${table} (${pluralize(rows, 'row')}) was never analyzed.`,
        reason: 'The planner does not know what is in it, and may choose a plan that reads all of it.',
        remedy: `analyze ${quoted(table)}; and see that autovacuum is on: show autovacuum`,
      }),
    ),
    ...dead.map(({ table, dead, live }) =>
      warning(check, {
        message: `${table} has ${pluralize(dead, 'dead row')} beside ${live} live ones.`,
        reason:
          'They are read past by every scan; something keeps vacuum from removing them, or it is behind.',
        remedy: `vacuum (analyze) ${quoted(table)}; before it end transactions that are left open, and slots below`,
      }),
    ),
  ]
}

function indexes({ unused, invalid }: PostgresUpkeep): Finding[] {
  return [
    ...invalid.map(({ index, table }) =>
      warning(check, {
        message: `The index ${index} of ${table} is invalid.`,
        reason: 'No statement reads it, and every write maintains it.',
        remedy: `reindex index concurrently ${quoted(index)}; or drop it, if its name ends in _ccnew or _ccold`,
      }),
    ),
    // No warning: svc has made indexes for what some installations never ask.
    ...unused.map(({ index, table, bytes }) =>
      passed(
        check,
        `The index ${index} of ${table} (${formatBytes(bytes)}) was never read, and every write maintains it; if svc has not made it: drop index concurrently ${quoted(index)}`,
      ),
    ),
  ]
}

/** Vacuum freezes rows at 200 million by default. */
const oldTransactions = 500_000_000
const lastTransactions = 1_500_000_000

function transactions(age: number): Finding[] {
  if (age < oldTransactions) return []
  const found = age < lastTransactions ? warning : failed
  return [
    found(check, {
      message: `Rows of ${Math.round(age / 1e6)} million transactions ago are not frozen.`,
      reason: 'At two billion PostgreSQL accepts no more writes.',
      remedy:
        'end transactions that are left open and slots that nobody uses, then run: vacuumdb --freeze --all',
    }),
  ]
}

function slot({ name, isActive, bytes, status }: Slot): Finding[] {
  if (status === 'lost') {
    return [
      warning(check, {
        message: `The replication slot ${name} has lost what its standby needs.`,
        reason: 'The standby cannot continue, and protects from nothing.',
        remedy: `select pg_drop_replication_slot('${name}'), and make the standby anew`,
      }),
    ]
  }
  if (bytes < (isActive ? maxSlotBytes : maxInactiveBytes)) return []
  return [
    warning(check, {
      message: `The replication slot ${name} keeps ${formatBytes(bytes)} of the write-ahead log${isActive ? '' : ', and nobody reads it'}.`,
      reason: 'It keeps more with every write, until the disk is full.',
      remedy: isActive
        ? 'see why its standby is behind: select * from pg_stat_replication'
        : `start its standby, or: select pg_drop_replication_slot('${name}')`,
    }),
  ]
}

const extensions = ({ outdated }: PostgresUpkeep): Finding[] =>
  outdated.map(({ name, installed, available }) =>
    warning(check, {
      message: `The extension ${name} is ${installed}, and the server has ${available}.`,
      reason: 'Functions of the older one may not fit the server.',
      remedy: `alter extension ${quoted(name)} update`,
    }),
  )

/** As a name in SQL, which a person will paste. */
const quoted = (name: string): string =>
  /^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`
