import { execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))

const identity = {
  GIT_AUTHOR_NAME: 'Ada',
  GIT_AUTHOR_EMAIL: 'ada@example.com',
  GIT_COMMITTER_NAME: 'Ada',
  GIT_COMMITTER_EMAIL: 'ada@example.com',
  GIT_CONFIG_GLOBAL: '/dev/null',
}
export const environment = { ...process.env, ...identity, SOURCE_DATE_EPOCH: undefined }

/** A checkout of its own, with the files of this one as they are now, in one commit, and the packages that npm has installed. */
export function copyCheckout(folder: string): void {
  const args = ['ls-files', '-z', '--cached', '--others', '--exclude-standard']
  const files = execFileSync('git', args, { cwd: root, encoding: 'utf8' }).split('\0').filter(Boolean)
  for (const file of files.filter((one) => existsSync(join(root, one)))) {
    mkdirSync(dirname(join(folder, file)), { recursive: true })
    copyFileSync(join(root, file), join(folder, file))
  }
  copyModules(folder)
  gitIn(folder, 'init', '--quiet')
  gitIn(folder, 'add', '--all')
  gitIn(folder, 'commit', '--quiet', '-m', 'all')
}

/** After the checkout has its owner and modes: the links share theirs with the files here. */
export function copyModules(folder: string): void {
  const modules = [join(root, 'node_modules'), join(folder, 'node_modules')]
  // Another file system takes no links.
  if (spawnSync('cp', ['-al', ...modules]).status !== 0) execFileSync('cp', ['-a', ...modules])
}

export const gitIn = (folder: string, ...args: string[]): string =>
  execFileSync('git', args, { cwd: folder, env: environment, encoding: 'utf8' }).trim()

/** Calls the script of a release in a checkout. */
export function release(folder: string, args: readonly string[], more: NodeJS.ProcessEnv = {}) {
  const script = join(folder, 'packaging/release.ts')
  const env = { ...environment, ...more }
  return spawnSync(process.execPath, [script, ...args], { cwd: folder, env, encoding: 'utf8' })
}
