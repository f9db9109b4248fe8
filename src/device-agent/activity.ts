import { existsSync } from 'node:fs'
import os from 'node:os'
import si from 'systeminformation'
import type { Heartbeat } from '../agents/contract.ts'
import { bestEffort, withoutUndefined } from './best-effort.ts'

/** What is going on at the machine right now. */
export async function readActivity(): Promise<Pick<Heartbeat, 'uptime' | 'lastUser' | 'pendingReboot'>> {
  const sessions = await bestEffort(() => si.users(), 5000)
  return withoutUndefined({
    uptime: Math.floor(os.uptime()),
    lastUser: latestUser(sessions ?? [])?.slice(0, 255),
    pendingReboot: pendingReboot(),
  })
}

/** Of those signed in, who came last. */
export function latestUser(sessions: { user: string; date: string; time: string }[]): string | undefined {
  const since = (session: { date: string; time: string }): string => `${session.date} ${session.time}`
  return sessions.filter(({ user }) => user !== '').sort((a, b) => (since(a) < since(b) ? 1 : -1))[0]?.user
}

/** Debian's mark; elsewhere nothing is claimed. */
function pendingReboot(): boolean | undefined {
  return existsSync('/etc/debian_version') ? existsSync('/run/reboot-required') : undefined
}
