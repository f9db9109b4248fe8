import type { Logger } from 'pino'
import type { Archive } from '../../src/audit/retention/ports.ts'
import type { Outbound } from '../../src/core/outbound.ts'
import type { Clock } from '../../src/core/time.ts'
import type { Mailer, PhoneCodes } from '../../src/messages/ports.ts'
import type { Storage } from '../../src/storage/open.ts'
import type { Config } from '../config.ts'
import { noPhoneCodes, outboxMailer, outboxPhoneCodes } from './development.ts'
import { guardedClient } from './guarded-client.ts'
import { s3Archive } from './s3.ts'
import { smtpMailer } from './smtp.ts'
import { twilioCodes } from './twilio.ts'

/** The ports to the outside. */
export type Outside = {
  mailer: Mailer
  phoneCodes: PhoneCodes
  /** undefined: none is configured. */
  archive: Archive | undefined
  /** Requests to addresses that somebody else has given. */
  outbound: Outbound
}

/** What is configured, else the development outbox. */
export function openOutside(config: Config, storage: Storage, clock: Clock, log: Logger): Outside {
  const { dataDir, production, secrets } = config
  const { smtp, twilio, archive, outbound } = config.outside
  if (production && !smtp) {
    log.warn('mail is not configured (SMTP_URL): it goes to outbox/ in the data directory only')
  }
  return {
    mailer: smtp ? smtpMailer(smtp) : outboxMailer(dataDir, clock),
    phoneCodes: twilio
      ? twilioCodes(twilio, log)
      : production
        ? noPhoneCodes
        : outboxPhoneCodes(dataDir, storage, secrets.recoveryPepper, clock),
    archive: archive && s3Archive(archive, outbound),
    outbound: guardedClient(outbound),
  }
}
