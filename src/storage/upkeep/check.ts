/** What `svc doctor` calls it. */
export const check = 'database upkeep'
