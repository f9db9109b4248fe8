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

export const passed = (check: string, message: string): Finding => ({
  check,
  state: 'ok',
  message,
  reason: null,
  remedy: null,
})

type Explained = { message: string; reason: string; remedy: string }

export const warning = (check: string, found: Explained): Finding => finding(check, 'warning', found)
export const failed = (check: string, found: Explained): Finding => finding(check, 'error', found)

/** What a finding quotes, such as the message of an error, may bring a full stop of its own. */
const oneStop = (text: string): string => text.replace(/\.{2,}$/, '.')

const finding = (
  check: string,
  state: Finding['state'],
  { message, reason, remedy }: Explained,
): Finding => ({ check, state, message: oneStop(message), reason: oneStop(reason), remedy: oneStop(remedy) })

/** `1 webhook`, `2 webhooks` */
export const pluralize = (count: number, one: string, many = `${one}s`): string =>
  `${count} ${count === 1 ? one : many}`
