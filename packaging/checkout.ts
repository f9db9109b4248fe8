// The checkout that a release is made of: what has to hold before, and the version that is written into it.
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { compareVersions, isVersion } from '../src/agents/versions/semver.ts'
import { firstSection, isUnreleased, released } from './changelog.ts'
import { hostPlatform, root } from './lockfile.ts'
import { msiProblemOf } from './msi-version.ts'
import { documents, renamed } from './named-files.ts'
import { missingTools } from './tools.ts'

/** What the version is written into. */
export const versionedFiles = ['CHANGELOG.md', 'package.json', 'package-lock.json', ...documents]

export const git = (...args: string[]): string =>
  execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trimEnd()

const read = (name: string): string => readFileSync(join(root, name), 'utf8')
const ownVersion = (): string => JSON.parse(read('package.json')).version

export const head = (): string => git('rev-parse', 'HEAD')
export const subjectOf = (version: string): string => `release: ${version}`
export const isCommitted = (version: string): boolean =>
  git('log', '-1', '--format=%s') === subjectOf(version)
export const tagOf = (version: string): string => `v${version}`

/** The commit of a tag. */
export function taggedCommit(version: string): string | undefined {
  const { status, stdout } = spawnSync(
    'git',
    ['rev-parse', '--quiet', '--verify', `refs/tags/${tagOf(version)}^{commit}`],
    { cwd: root, encoding: 'utf8' },
  )
  return status === 0 ? stdout.trim() : undefined
}

export function isPrepared(version: string): boolean {
  const { version: locked, packages } = JSON.parse(read('package-lock.json'))
  const versions = [ownVersion(), locked, packages[''].version, firstSection(read('CHANGELOG.md'))?.version]
  return (
    versions.every((one) => one === version) &&
    documents.every((file) => renamed(read(file), version) === read(file))
  )
}

/** `date` as YYYY-MM-DD. */
export function prepare(version: string, date: string): void {
  const changelog = read('CHANGELOG.md')
  if (firstSection(changelog)?.version !== version)
    writeFileSync(join(root, 'CHANGELOG.md'), released(changelog, version, date))
  for (const file of documents) writeFileSync(join(root, file), renamed(read(file), version))
  const flags = ['--no-git-tag-version', '--allow-same-version', '--ignore-scripts', '--silent']
  execFileSync('npm', ['version', version, ...flags], { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] })
}

/** Names what would be committed: also what only the index has. */
export function stagedTree(): string {
  git('add', ...versionedFiles)
  return git('write-tree')
}

const testedFile = join(root, 'release', '.tested')

/** The tests have passed on exactly these contents. */
export const isTested = (): boolean =>
  existsSync(testedFile) && readFileSync(testedFile, 'utf8') === git('write-tree')

export function noteTested(tree: string): void {
  mkdirSync(join(root, 'release'), { recursive: true })
  writeFileSync(testedFile, tree)
}

/** Why no release of this version can be made here, each with what to do. */
export function problemsOf(version: string, kinds: readonly string[]): string[] {
  if (!isVersion(version)) return [`${JSON.stringify(version)} is not a version such as 1.2.3 or 1.3.0-rc.1`]
  return [
    hostPlatform !== 'linux-x64' && 'A release is made on Linux on x86-64',
    ...missingTools(kinds),
    kinds.includes('msi') && msiProblemOf(version),
    changesIn(version),
    ...orderOf(version),
    changelogFor(version),
  ].filter((one) => typeof one === 'string')
}

/** The lines of `git status` for what a commit would leave out. */
export const unstaged = (): string[] => statusLines().filter((line) => line[1] !== ' ')

function statusLines(): string[] {
  // Its first line may begin with a space.
  const args = ['status', '--porcelain', '--untracked-files=all']
  return execFileSync('git', args, { cwd: root, encoding: 'utf8' }).split('\n').filter(Boolean)
}

function changesIn(version: string): string | false {
  const lines = statusLines()
  const isStaged = lines.some((line) => /^[^ ?]/.test(line))
  // An earlier run was interrupted before its commit. What it has staged is what the tests ran on, with nothing changed since.
  const isOwn = (line: string): boolean =>
    versionedFiles.includes(line.slice(3)) && (line[1] === ' ' || !isStaged)
  const others = isPrepared(version) ? lines.filter((line) => !isOwn(line)) : lines
  return (
    others.length > 0 &&
    `The checkout has changes:\n${shown(others)}\n  Commit them, or take them back with git restore`
  )
}

/** Lines of `git status`; few of them say what has happened. */
export const shown = (lines: readonly string[]): string =>
  [...lines.slice(0, 20), ...(lines.length > 20 ? [`and ${lines.length - 20} more`] : [])]
    .map((line) => `    ${line}`)
    .join('\n')

function orderOf(version: string): string[] {
  const [tagged, commit] = [taggedCommit(version), head()]
  if (tagged === commit) return []
  if (tagged)
    return [
      `${tagOf(version)} is ${tagged.slice(0, 8)} already: choose another version, or git checkout ${tagOf(version)} to build it again`,
    ]
  const newest = git('tag', '--list', 'v*')
    .split('\n')
    .map((tag) => tag.slice(1))
    .filter(isVersion)
    .sort(compareVersions)
    .at(-1)
  const earlier = git('log', '-1', '--format=%h', `--grep=^${subjectOf(version).replaceAll('.', '\\.')}$`)
  const problems: string[] = []
  if (newest !== undefined && compareVersions(newest, version) > 0)
    problems.push(`${version} is not newer than ${tagOf(newest)}`)
  if (compareVersions(ownVersion(), version) > 0)
    problems.push(`${version} is not newer than the ${ownVersion()} of package.json`)
  if (earlier && !isCommitted(version))
    problems.push(
      `The commit of this release is ${earlier}, and others came after it: git checkout ${earlier}, then run this again`,
    )
  return problems
}

function changelogFor(version: string): string | false {
  const section = firstSection(read('CHANGELOG.md'))
  if (section && section.text === '') return `CHANGELOG.md says nothing of ${version}`
  if (section && (section.version === version || isUnreleased(section))) return false
  return `CHANGELOG.md has to begin with the changes of ${version}, below ## ${version} (unreleased)`
}
