/** One e-mail to one person. `kind` names it in logs; `links` are the addresses in the text. */
export type MailMessage = {
  to: string
  kind: string
  subject: string
  text: string
  html: string
  links: string[]
}

/** Sends mails; throws when it could not. */
export type Mailer = {
  /** A mail that is sent again has the same `id`, so that the receiver can recognize it. */
  send(letter: MailMessage, id?: string): Promise<void>
  /** false: mails only go to the development outbox */
  readonly real: boolean
}

/**
 * A verification service that creates, sends and checks codes itself. @throws sms_not_configured (501),
 * sms_unavailable (502)
 */
export type PhoneCodes = {
  /** `phoneNumber` in E.164. */
  send(phoneNumber: string): Promise<void>
  /** A code is accepted once. */
  check(phoneNumber: string, code: string): Promise<boolean>
}
