import { SetupError } from '../../src/core/errors.ts'
import { type Env, readSecretVariable, readUrl } from '../variables.ts'

export type S3Settings = {
  bucket: string
  /** Without a slash at its end; may be empty. */
  prefix: string
  /** undefined: that of AWS for the region. */
  endpoint: string | undefined
  region: string
  /** undefined: as the SDK finds them (environment, profile, role of the machine). */
  credentials: { accessKeyId: string; secretAccessKey: string } | undefined
}

/** From the variables that begin like this; undefined when no bucket is named. @throws SetupError */
export function readS3(env: Env, prefixOf: string): S3Settings | undefined {
  const bucket = env[`${prefixOf}BUCKET`]
  const access = readAccess(env, prefixOf)
  if (!bucket) {
    const set = ['PREFIX', 'ENDPOINT', 'REGION'].find((name) => env[prefixOf + name])
    if (set) throw new SetupError(`${prefixOf}${set} is set, but not ${prefixOf}BUCKET`)
    return undefined
  }
  return { bucket, prefix: trimmed(env[`${prefixOf}PREFIX`] ?? ''), ...access }
}

/** Without slashes at its ends. */
export const trimmed = (prefix: string): string => prefix.replace(/^\/+|\/+$/g, '')

/** How the storage is reached, whatever the bucket. @throws SetupError */
export function readAccess(env: Env, prefixOf: string): Omit<S3Settings, 'bucket' | 'prefix'> {
  const keys = ['ACCESS_KEY_ID', 'SECRET_ACCESS_KEY'].map((name) => readSecretVariable(env, prefixOf + name))
  const endpoint = readUrl(env, `${prefixOf}ENDPOINT`)
  const [accessKeyId, secretAccessKey] = keys
  if ((accessKeyId === undefined) !== (secretAccessKey === undefined)) {
    throw new SetupError(`Set ${prefixOf}ACCESS_KEY_ID and ${prefixOf}SECRET_ACCESS_KEY both or not at all`)
  }
  return {
    endpoint,
    region: env[`${prefixOf}REGION`] || env.AWS_REGION || 'us-east-1',
    credentials:
      accessKeyId !== undefined && secretAccessKey !== undefined
        ? { accessKeyId, secretAccessKey }
        : undefined,
  }
}
