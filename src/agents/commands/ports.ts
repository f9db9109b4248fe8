import type { Db } from '../../storage/open.ts'

/**
 * Notifies the process that holds the live connection of a device's agent that a command is pending, once the
 * transaction is committed. A lost notification is harmless: the next heartbeat fetches the command.
 */
export type Nudge = (tx: Db, deviceId: string) => Promise<void>
