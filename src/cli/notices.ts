import { spawn } from 'node:child_process'
import { join } from 'node:path'
import semverDiff from 'semver/functions/diff.js'
import semverGt from 'semver/functions/gt.js'
import { isVersion } from '../agents/versions/semver.ts'
import { cacheDir, readCached, writePrivateFile } from './files.ts'
import { printNote } from './print.ts'
import { type ServiceVersion, serviceVersion } from './service-version.ts'
import { isTruthy } from './settings.ts'
import { readNewest } from './update-check.ts'

const dayMs = 86_400_000
/** Most contexts whose difference is remembered; the oldest are dropped. */
const maxSkews = 100

type Noted = {
  /** When UPDATE_URL was last asked, and when its answer was last told. */
  askedAt?: number
  updateAt?: number
  /** The versions that were told, of each context. */
  skews?: Record<string, string>
}

/**
 * Tells a person that a newer version exists, once a day, and that the service has another version, once per context. Without a
 * file that remembers it nothing is told: it would be repeated by each command.
 */
export function printNotices(version: string, env: NodeJS.ProcessEnv = process.env): void {
  if (isTruthy(env.CI)) return
  const noted = readCached<Noted>(notedFile()) ?? {}
  const now = Date.now()
  const isDue = (at = 0) => Math.abs(now - at) >= dayMs
  const url = isTruthy(env.SVC_NO_UPDATE_CHECK) ? undefined : env.UPDATE_URL
  const newest = url ? readNewest(url) : undefined
  const isOutdated = newest !== undefined && semverGt(newest, version) && isDue(noted.updateAt)
  const asks = Boolean(url) && isDue(noted.askedAt)
  const service = serviceVersion()
  const skew = service && skewOf(version, service)
  const isNews = skew !== undefined && noted.skews?.[skew.at] !== skew.versions
  if (!isOutdated && !asks && !isNews) return
  const skews = isNews ? { ...noted.skews, [skew.at]: skew.versions } : noted.skews
  write({
    ...noted,
    ...(asks && { askedAt: now }),
    ...(isOutdated && { updateAt: now }),
    ...(skews && { skews: Object.fromEntries(Object.entries(skews).slice(-maxSkews)) }),
  })
  if (isNews) printNote(skew.text)
  if (isOutdated)
    printNote(`svc ${newest} is available, this is ${version}; SVC_NO_UPDATE_CHECK=1 ends this notice`)
  if (asks) askInBackground()
}

/** Undefined where they differ in the patch at most. */
function skewOf(own: string, { version, url, context }: ServiceVersion) {
  if (!isVersion(version) || !isVersion(own)) return undefined
  if (!/major|minor/.test(semverDiff(own, version) ?? '')) return undefined
  const text = semverGt(version, own)
    ? `This is svc ${own}, and ${url} has ${version}: what is new there is missing here. Update this one`
    : `This is svc ${own}, and ${url} has ${version}: it refuses what it does not know yet`
  return { at: context ?? url, versions: `${own} ${version}`, text }
}

const notedFile = (): string => join(cacheDir(), 'notices.json')

const write = (noted: Noted): void => writePrivateFile(notedFile(), JSON.stringify(noted))

function askInBackground(): void {
  const args = [process.argv[1] ?? '', 'update-check']
  spawn(process.execPath, args, { detached: true, stdio: 'ignore' })
    .on('error', () => {})
    .unref()
}
