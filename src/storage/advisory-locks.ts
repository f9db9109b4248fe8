/**
 * Advisory locks of Postgres that no other program takes: the bytes of "svc", and a number for each. Two of one number would wait
 * for each other.
 */
const space = 0x737663
export const advisoryLocks = {
  migration: [space, 1],
  restore: [space, 2],
  copy: [space, 3],
  drill: [space, 4],
} as const
