import { execFileSync } from 'node:child_process'
import { root } from './lockfile.ts'

/** The time of what is made, in seconds since 1970: that of the commit, so that two builds of it are the same. */
export function sourceDate(): number {
  const { SOURCE_DATE_EPOCH } = process.env
  if (SOURCE_DATE_EPOCH) {
    if (/^\d{1,11}$/.test(SOURCE_DATE_EPOCH)) return Number(SOURCE_DATE_EPOCH)
    throw new Error(`SOURCE_DATE_EPOCH is seconds since 1970, not ${JSON.stringify(SOURCE_DATE_EPOCH)}`)
  }
  try {
    return commitTime()
  } catch {
    // git is missing, or this is no checkout: either way it takes the setting.
    throw new Error('There is no commit to take the time from: set SOURCE_DATE_EPOCH to seconds since 1970')
  }
}

/** Whatever the environment says: a release has the time of its commit. */
export function commitTime(): number {
  const stdio: ['ignore', 'pipe', 'ignore'] = ['ignore', 'pipe', 'ignore']
  return Number(execFileSync('git', ['log', '-1', '--format=%ct'], { cwd: root, encoding: 'utf8', stdio }))
}
