/** The result of one check of `svc doctor`. */
export type Finding = {
  /** What was checked, such as `database schema`. */
  check: string
  state: 'ok' | 'warning' | 'error'
  /** What was found, in one sentence. */
  message: string
  /** Why it matters; null when there is nothing to do. */
  reason: string | null
  /** The command or setting that mends it; null when there is nothing to do. */
  remedy: string | null
}
