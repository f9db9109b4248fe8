import type { Archive } from '../../src/audit/retention/ports.ts'
import type { PhoneCodes } from '../../src/messages/ports.ts'
import type { Provider } from './provider.ts'
import { s3Archive } from './s3.ts'
import { twilio } from './twilio.ts'

/* Settings, reload, backup and doctor go by these lists: a provider is its own file and one entry here. */

export const smsProviders: readonly Provider<PhoneCodes>[] = [twilio]

/** Where audit entries are archived before retention deletes them. */
export const archiveTargets: readonly Provider<Archive>[] = [s3Archive]
