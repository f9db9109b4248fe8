/** A connection that holds what another one waits for. */
export type Blocker = {
  /** 0: a prepared transaction, which has no connection. */
  pid: number
  user: string | null
  application: string | null
  state: string | null
  /** When its transaction began; null also where this role may not know. */
  since: string | null
}

/** `pid 4711 (psql of alice, idle in transaction since 2026-03-01T12:00:00Z)` */
export function describeBlocker({ pid, user, application, state, since }: Blocker): string {
  if (pid === 0) return 'a prepared transaction (select * from pg_prepared_xacts)'
  const who = [application || 'unnamed', ...(user ? [`of ${user}`] : [])].join(' ')
  const what = [state, ...(since ? [`since ${since}`] : [])].filter(Boolean).join(' ')
  return `pid ${pid} (${[who, what].filter(Boolean).join(', ')})`
}

/** What keeps a migration waiting: the locks of other transactions, or (null) another process that migrates. */
export type MigrationWait = { migration: string | null; blockers: Blocker[] }

export function describeWait({ migration, blockers }: MigrationWait): string {
  const who = blockers.map(describeBlocker).join(', ')
  return migration === null
    ? `waiting for another process that migrates: ${who || 'it has just ended'}; svc db unlock ends it`
    : `migration ${migration} waits for a lock of ${who}`
}
