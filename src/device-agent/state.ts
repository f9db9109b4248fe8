import { readFileSync, rmSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { Problem } from '../core/errors.ts'
import { makeFolder } from '../core/make-folder.ts'
import { replaceFile } from './durable.ts'

/** The identity of this machine at the service, from its enrollment. */
const Identity = z.object({
  url: z.url(),
  agentId: z.string().min(1),
  deviceId: z.string().min(1),
  orgId: z.string().min(1),
  siteId: z.string().nullable(),
  authToken: z.string().min(1),
  /** Absent for agents that were enrolled before the watchdog had a token. */
  watchdogAuthToken: z.string().min(1).optional(),
  heartbeatIntervalSeconds: z.number().positive(),
  /** Tokens that replace these once the service has confirmed them. */
  staged: z
    .object({ authToken: z.string().min(1), watchdogAuthToken: z.string().min(1).optional() })
    .optional(),
  /** By which this machine gets new tokens when its own is refused. Absent for agents of before. */
  proof: z
    .object({
      /** PKCS #8 in PEM. */
      privateKey: z.string().min(1),
      /** Key of the service that knows the public key; absent until it does. */
      service: z.string().min(1).optional(),
      /** When this machine last got new tokens by it. */
      recoveredAt: z.iso.datetime().optional(),
    })
    .optional(),
})
export type Identity = z.output<typeof Identity>

/** Default directory of the identity. */
export function stateDirFrom(env: NodeJS.ProcessEnv, uid: number | undefined): string {
  if (env.SVC_AGENT_STATE_DIR) return env.SVC_AGENT_STATE_DIR
  if (uid === 0) return '/var/lib/svc-agent'
  if (process.platform === 'win32') return join(env.ProgramData ?? 'C:\\ProgramData', 'svc-agent')
  return join(env.XDG_STATE_HOME || join(homedir(), '.local', 'state'), 'svc-agent')
}

/** Where an installation stores the enrollment key; removed after its use. */
export const keyFilePath = (stateDir: string): string => join(stateDir, 'enrollment.key')

export type IdentityStore = {
  /** Path of the file, for messages. */
  file: string
  load(): Identity | undefined
  save(identity: Identity): void
}

export const identityStore = (stateDir: string): IdentityStore => ({
  file: identityFile(stateDir),
  load: () => loadIdentity(stateDir),
  save(identity) {
    saveIdentity(stateDir, identity)
    rmSync(keyFilePath(stateDir), { force: true })
  },
})

const identityFile = (stateDir: string): string => join(stateDir, 'identity.json')

/** Creates the directory, accessible only by its owner. A directory writable by others is unsafe for credentials. */
export function prepareStateDir(stateDir: string): void {
  try {
    makeFolder(stateDir)
  } catch (error) {
    throw new Problem(
      'invalid_request',
      `Cannot use the state directory ${stateDir}: ${(error as Error).message}`,
    )
  }
  if (process.platform !== 'win32' && (statSync(stateDir).mode & 0o022) !== 0) {
    throw new Problem('invalid_request', `${stateDir} is writable by others; run: chmod 700 ${stateDir}`)
  }
}

/** The identity of an earlier run, or undefined before the first enrollment. */
function loadIdentity(stateDir: string): Identity | undefined {
  const file = identityFile(stateDir)
  const mode = statSync(file, { throwIfNoEntry: false })?.mode
  if (mode === undefined) return undefined
  if (process.platform !== 'win32' && (mode & 0o077) !== 0) {
    throw new Problem(
      'invalid_request',
      `${file} contains a credential and is readable by others; run: chmod 600 ${file}`,
    )
  }
  try {
    return Identity.parse(JSON.parse(readFileSync(file, 'utf8')))
  } catch {
    // The text of the error may quote the tokens.
    throw new Problem(
      'invalid_request',
      `${file} is not an agent identity; remove it to enroll this machine again`,
    )
  }
}

/** @throws when it cannot be written */
const saveIdentity = (stateDir: string, identity: Identity): void =>
  replaceFile(identityFile(stateDir), `${JSON.stringify(identity, null, 2)}\n`)
