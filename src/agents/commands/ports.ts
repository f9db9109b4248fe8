import type { Db } from '../../storage/open.ts'

/**
 * Tells whoever holds the connection of a device's agent that something waits for it, once the transaction is
 * committed. One that is lost is no harm: the next heartbeat fetches what waits.
 */
export type Nudge = (tx: Db, deviceId: string) => Promise<void>
