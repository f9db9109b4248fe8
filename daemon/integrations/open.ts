import type { Logger } from 'pino'
import type { ReleaseFiles } from '../../src/agents/downloads/ports.ts'
import type { ReleaseSource } from '../../src/agents/versions/ports.ts'
import type { Archive } from '../../src/audit/retention/ports.ts'
import type { Outbound } from '../../src/core/outbound.ts'
import type { Clock } from '../../src/core/time.ts'
import type { Mailer, PhoneCodes } from '../../src/messages/ports.ts'
import type { Storage } from '../../src/storage/open.ts'
import type { Config } from '../config.ts'
import { directoryBinaries, hostBinaries } from './binaries.ts'
import { noPhoneCodes, outboxMailer, outboxPhoneCodes } from './development.ts'
import { guardedClient } from './guarded-client.ts'
import { releaseDirectory } from './release-directory.ts'
import { releaseHost } from './release-host.ts'
import { bucketBinaries } from './s3-binaries.ts'
import type { IntegrationSettings } from './settings.ts'
import { smtpMailer } from './smtp.ts'

/** The ports to the outside. */
export type Integrations = {
  mailer: Mailer
  phoneCodes: PhoneCodes
  /** undefined: none is configured. */
  archive: Archive | undefined
  /** Requests to addresses from untrusted input. */
  outbound: Outbound
  /** Source of agent releases; undefined: not configured. */
  releases: ReleaseSource | undefined
  /** Source of release files. */
  binaries: ReleaseFiles
}

/** The configured integrations, else the development outbox. `known`: a client for outbound requests that is open already. */
export function openIntegrations(
  config: Config,
  storage: Storage,
  clock: Clock,
  log: Logger,
  known?: Outbound,
): Integrations {
  const { dataDir, production, secrets } = config
  const { smtp, sms, archive, outbound } = config.outside
  if (production && !smtp) {
    log.warn('mail is not configured (SMTP_URL): it goes to outbox/ in the data directory only')
  }
  const guarded = known ?? guardedClient(outbound)
  return {
    mailer: smtp ? smtpMailer(smtp) : outboxMailer(dataDir, clock),
    phoneCodes: sms
      ? sms.provider.open(sms.settings, outbound, log)
      : production
        ? noPhoneCodes
        : outboxPhoneCodes(dataDir, storage, secrets.recoveryPepper, clock),
    archive: archive?.provider.open(archive.settings, outbound, log),
    outbound: guarded,
    ...openReleases(config.outside, guarded, log),
  }
}

function openReleases(
  { releases, outbound }: IntegrationSettings,
  guarded: Outbound,
  log: Logger,
): Pick<Integrations, 'releases' | 'binaries'> {
  const { api, source, directory, storage } = releases
  if (source === 'release-host') return { releases: api && releaseHost(api, guarded), binaries: hostBinaries }
  const binaries = storage ? bucketBinaries(storage, outbound, log) : directoryBinaries(directory!)
  const announced = directory === undefined ? undefined : releaseDirectory(directory, binaries.sizeOf)
  return { releases: api ? releaseHost(api, guarded) : announced, binaries }
}
