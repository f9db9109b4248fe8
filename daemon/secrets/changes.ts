import { isDeepStrictEqual } from 'node:util'
import type { Config } from '../config.ts'
import type { ChosenProvider, Provider } from '../integrations/provider.ts'
import { archiveTargets, smsProviders } from '../integrations/providers.ts'

type Settings = Readonly<Record<string, (config: Config) => unknown>>

/** Settings that a running service takes, as the log names them. */
const reloadable: Settings = {
  JWT_SECRET: ({ secrets, previous }) => [secrets.jwt, previous.jwt],
  APP_ENCRYPTION_KEY: ({ secrets, previous }) => [secrets.encryption, previous.encryption],
  ENROLLMENT_KEY_PEPPER: ({ secrets, previous }) => [secrets.enrollmentPepper, previous.enrollmentPepper],
  MFA_RECOVERY_CODE_PEPPER: ({ secrets, previous }) => [secrets.recoveryPepper, previous.recoveryPepper],
  AUDIT_SIGNING_KEY: ({ signing }) => signing,
  METRICS_TOKEN: ({ metricsToken, previousMetricsToken }) => [metricsToken, previousMetricsToken],
  AGENT_ENROLLMENT_SECRET: ({ enrollmentSecret }) => enrollmentSecret,
  LOG_LEVEL: ({ logLevel }) => logLevel,
  SMTP: ({ outside }) => outside.smtp,
  ...byProvider(smsProviders, ({ outside }) => outside.sms),
  ...byProvider(archiveTargets, ({ outside }) => outside.archive),
  AGENT_BINARY_S3: ({ outside }) => outside.releases.storage,
  RELEASE_API_TOKEN: ({ outside }) => outside.releases.api,
}

/** Settings that come from files too, and need a restart. */
const needRestart: Settings = {
  DATABASE_URL: ({ databaseUrl, poolerUrl }) => [databaseUrl, poolerUrl],
  OTEL_EXPORTER_OTLP: ({ tracing }) => tracing,
  OUTBOUND_CA_FILE: ({ outside }) => outside.outbound.ca,
  RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS: ({ outside }) =>
    outside.releases.trustKeys.map(({ keyId }) => keyId),
}

function byProvider<Port>(
  providers: readonly Provider<Port>[],
  chosen: (config: Config) => ChosenProvider<Port> | undefined,
): Settings {
  const entries = providers.map((provider) => {
    const settingsIn = (config: Config) => {
      const one = chosen(config)
      return one?.provider === provider ? one.settings : undefined
    }
    return [provider.prefix, settingsIn] as const
  })
  return Object.fromEntries(entries)
}

/** `restart`: those that differ from the settings that the process was started with. */
export function changedSettings(before: Config, after: Config, started: Config) {
  const differing = (names: Settings, other: Config) =>
    Object.entries(names).flatMap(([name, read]) =>
      isDeepStrictEqual(read(other), read(after)) ? [] : [name],
    )
  return { reloadable: differing(reloadable, before), restart: differing(needRestart, started) }
}
