/** One e-mail to one person. `kind` names it in logs; `links` are the addresses the text holds. */
export type MailMessage = {
  to: string
  kind: string
  subject: string
  text: string
  html: string
  links: string[]
}

/** Takes letters to the outside; throws when it could not. */
export type Mailer = {
  /** A letter that is sent once more has the same `id`, so that a receiver can tell. */
  send(letter: MailMessage, id?: string): Promise<void>
  /** false: only the development outbox */
  readonly real: boolean
}

/**
 * A verification service that makes, sends and checks codes itself.
 * @throws sms_not_configured (501), sms_unavailable (502)
 */
export type PhoneCodes = {
  /** `phoneNumber` in E.164. */
  send(phoneNumber: string): Promise<void>
  /** A code is accepted once. */
  check(phoneNumber: string, code: string): Promise<boolean>
}
