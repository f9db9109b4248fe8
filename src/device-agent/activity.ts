import { existsSync } from 'node:fs'
import os from 'node:os'
import si from 'systeminformation'
import type { Heartbeat } from '../agents/contract.ts'
import { withoutUndefined } from '../core/json.ts'
import { bestEffort } from './best-effort.ts'

/** The present activity on the machine. */
export async function readActivity(): Promise<Pick<Heartbeat, 'uptime' | 'lastUser' | 'pendingReboot'>> {
  const sessions = await bestEffort(() => si.users(), 5000)
  return withoutUndefined({
    uptime: Math.floor(os.uptime()),
    lastUser: latestUser(sessions ?? [])?.slice(0, 255),
    pendingReboot: pendingReboot(),
  })
}

/** The user with the latest sign-in. */
export function latestUser(sessions: { user: string; date: string; time: string }[]): string | undefined {
  const since = (session: { date: string; time: string }): string => `${session.date} ${session.time}`
  return sessions.filter(({ user }) => user !== '').sort((a, b) => (since(a) < since(b) ? 1 : -1))[0]?.user
}

/** Checks Debian's marker file; unknown on other systems. */
function pendingReboot(): boolean | undefined {
  return existsSync('/etc/debian_version') ? existsSync('/run/reboot-required') : undefined
}
