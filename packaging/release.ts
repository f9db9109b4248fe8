// Makes a release, from a clean checkout to a tag; docs/releasing.md says more:
//   npm run release -- VERSION [--dry-run] [--key-file FILE] [--skip-tests] [--only KIND]... [--out DIR] [--builder URI]
//     [--maintainer "NAME <ADDRESS>"]
// Run again after an interruption it goes on where it stopped. It pushes and publishes nothing.
import { execFileSync } from 'node:child_process'
import { createPublicKey, type KeyObject, sign, verify } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { CliError } from '../src/cli/exit-codes.ts'
import { shWord } from '../src/cli/shell-words.ts'
import { publicOf, readReleaseKey } from '../src/cli/sign-release.ts'
import { type Artifact, artifactsOf, kinds, makeArtifact, node } from './artifacts.ts'
import { firstSection } from './changelog.ts'
import * as checkout from './checkout.ts'
import { root } from './lockfile.ts'
import { provenanceOf, repositoryAddress } from './provenance.ts'
import { releaseNotes } from './release-notes.ts'
import { commitTime } from './source-date.ts'
import { damagedIn, sumsOf, textOfSums } from './sums.ts'

/** `isDone` reads alone: a dry run asks it too. */
type Step = { title: string; isDone?: () => boolean; run: () => void }

/** What all files of a folder have in common, also those of an earlier run. */
type MadeOf = { commit: string; maintainer: string | undefined }
const madeOfFile = '.made-of'

const provenanceFile = 'provenance.intoto.jsonl'
const signable = ['SHA256SUMS', provenanceFile]
const publicKeyFile = 'release-key.pem'

const { values, version } = commandLine()
const out = resolve(values.out ?? join(root, 'release', version))
const only = values.only ?? kinds
const artifacts = artifactsOf(version, values.maintainer)
const wanted = artifacts.filter(({ kind }) => only.includes(kind))
const at = (name: string): string => join(out, name)
const signed = (): string[] => signable.filter((name) => existsSync(at(name)))
const isMade = ({ files }: Artifact): boolean => files.every((file) => existsSync(at(file)))

try {
  const key = values['key-file'] === undefined ? undefined : readReleaseKey(values['key-file'], '--key-file')
  release(key)
} catch (error) {
  if (!(error instanceof CliError)) throw error
  fail([error.message, error.hint].filter(Boolean).join('\n  '), error.exit)
}

function release(key: KeyObject | undefined): void {
  const repository = repositoryAddress()
  const problems = [...checkout.problemsOf(version, only), ...problemsOfFolder()]
  const steps = problems.length === 0 || values['dry-run'] ? stepsOf(key, repository) : []
  if (values['dry-run']) {
    for (const { title, isDone } of steps) say(`${problems.length === 0 && isDone?.() ? '✓' : '·'} ${title}`)
  }
  if (problems.length > 0) fail(problems.map((one) => `✗ ${one}`).join('\n'), 1)
  if (values['dry-run']) return
  // What is made does not depend on it, but who may read it.
  process.umask(0o022)
  for (const step of steps) {
    if (step.isDone?.()) {
      say(`✓ ${step.title}`)
      continue
    }
    say(`· ${step.title}`)
    step.run()
  }
  say(`\n${out} has the release. Nothing was pushed or published. Next:
  git push && git push origin ${checkout.tagOf(version)}
  npm run version-before -- ${checkout.tagOf(version)}, and commit that as the first change after the release`)
  if (key) say(`  publish the files; who checks them needs this key: ${publicOf(key).publicKeyB64}`)
  else
    say('  sign the files: run this again with --key-file FILE (svc agent sign-release --new-key makes one)')
}

function stepsOf(key: KeyObject | undefined, repository: string | undefined): Step[] {
  const isCommitted = (): boolean => checkout.isCommitted(version)
  return [
    {
      title: `write ${version} into ${checkout.versionedFiles.join(', ')}`,
      isDone: () => checkout.isPrepared(version),
      run: () => checkout.prepare(version, today()),
    },
    values['skip-tests']
      ? { title: 'npm ci && npm test: left out, as --skip-tests says', run: () => {} }
      : { title: 'npm ci && npm test', isDone: checkout.isTested, run: test },
    {
      title: `commit ${checkout.subjectOf(version)}`,
      isDone: isCommitted,
      run: () => {
        checkout.stagedTree()
        checkout.git('commit', '--quiet', '--allow-empty', '-m', checkout.subjectOf(version))
      },
    },
    { title: 'build', isDone: () => isCommitted() && wanted.every(isMade), run: build },
    ...wanted.map((artifact) => ({
      title: `make ${artifact.files[0]}`,
      isDone: () => isCommitted() && isMade(artifact),
      run: () => makeArtifact(artifact, out),
    })),
    {
      title: repository
        ? `write RELEASE-NOTES, SHA256SUMS and ${provenanceFile}`
        : `write RELEASE-NOTES and SHA256SUMS, without ${provenanceFile}, which names the repository: package.json has none (npm pkg set repository=https://HOST/PATH)`,
      run: () => describeFiles(repository),
    },
    key
      ? { title: `sign them with ${values['key-file']}`, run: () => signFiles(key) }
      : { title: 'leave them UNSIGNED, since there is no --key-file', run: () => {} },
    { title: 'check the files', run: () => check(key) },
    {
      title: `tag ${checkout.tagOf(version)}`,
      isDone: () => checkout.taggedCommit(version) === checkout.head(),
      run: () => checkout.git('tag', '-a', checkout.tagOf(version), '--cleanup=verbatim', '-m', tagText()),
    },
  ]
}

/** A folder of another commit would be completed with files of this one. */
function problemsOfFolder(): string[] {
  if (!existsSync(out) || readdirSync(out).length === 0) return []
  const { commit, maintainer }: Partial<MadeOf> = existsSync(at(madeOfFile))
    ? JSON.parse(readFileSync(at(madeOfFile), 'utf8'))
    : {}
  const otherwise = 'remove it, or name another folder with --out'
  if (commit !== checkout.head())
    return [`${out} has files of ${commit ? `commit ${commit.slice(0, 8)}` : 'something else'}: ${otherwise}`]
  if (maintainer !== values.maintainer)
    return [
      maintainer === undefined
        ? `${out} was begun without --maintainer: leave that out. Or ${otherwise}`
        : `${out} was begun with --maintainer ${shWord(maintainer)}: say so again. Or ${otherwise}`,
    ]
  // Sums and signatures are made anew from what is there.
  return damagedIn(out).map(
    (name) => `${at(name)} is not as SHA256SUMS says: remove it, and it is made again`,
  )
}

function test(): void {
  const tree = checkout.stagedTree()
  try {
    for (const args of [['ci'], ['test']]) execFileSync('npm', args, { cwd: root, stdio: 'inherit' })
  } catch {
    // npm has said what fails.
    const files = checkout.versionedFiles.join(' ')
    fail(
      `The tests fail, and nothing is committed.\n  git restore --staged --worktree ${files}, mend what fails, commit it, and run this again`,
      1,
    )
  }
  const changed = checkout.unstaged()
  if (changed.length > 0)
    fail(
      `This was changed while the tests ran, and nothing is committed:\n${checkout.shown(changed)}\n  Take it back with git restore, and run this again`,
      1,
    )
  checkout.noteTested(tree)
}

function build(): void {
  mkdirSync(out, { recursive: true })
  const { maintainer } = values
  writeFileSync(at(madeOfFile), JSON.stringify({ commit: checkout.head(), maintainer } satisfies MadeOf))
  process.env.SOURCE_DATE_EPOCH = String(commitTime())
  // Nothing of an earlier build may be in it.
  rmSync(join(root, 'dist'), { recursive: true, force: true })
  node('build.js')
  node('build-man.js')
}

function describeFiles(repository: string | undefined): void {
  // All files of a kind or none: `--only` makes them together.
  const madeKinds = kinds.filter((kind) => artifacts.every((one) => one.kind !== kind || isMade(one)))
  const made = artifacts.filter(({ kind }) => madeKinds.includes(kind))
  for (const name of [...signable.map((one) => `${one}.sig`), provenanceFile, publicKeyFile])
    rmSync(at(name), { force: true })
  const { text } = firstSection(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'))!
  const { builder, maintainer } = values
  const hasProvenance = repository !== undefined
  const notes = releaseNotes({ version, text, artifacts, madeKinds, maintainer, hasProvenance })
  writeFileSync(at('RELEASE-NOTES'), notes)
  const sums = sumsOf(out, [...made.flatMap(({ files }) => files), 'RELEASE-NOTES'])
  writeFileSync(at('SHA256SUMS'), textOfSums(sums))
  if (!hasProvenance) return
  const provenance = provenanceOf(sums, {
    version,
    commit: checkout.head(),
    repository,
    builder,
    chosen: { artifacts: madeKinds, ...(maintainer && { maintainer }) },
    seconds: commitTime(),
    npm: execFileSync('npm', ['--version'], { cwd: root, encoding: 'utf8' }).trim(),
  })
  writeFileSync(at(provenanceFile), provenance)
}

function signFiles(key: KeyObject): void {
  for (const name of signed())
    writeFileSync(at(`${name}.sig`), `${sign(null, readFileSync(at(name)), key).toString('base64')}\n`)
  writeFileSync(at(publicKeyFile), createPublicKey(key).export({ format: 'pem', type: 'spki' }))
  if (artifacts.some((one) => one.kind === 'agent' && isMade(one))) {
    const args = ['--version', version, '--key-file', resolve(values['key-file']!)]
    node('bin/svc.js', 'agent', 'sign-release', out, ...args)
  }
}

/** What a receiver checks, and that nothing of the checkout has changed under the build. */
function check(key: KeyObject | undefined): void {
  for (const name of key ? signed() : []) {
    const signature = Buffer.from(readFileSync(at(`${name}.sig`), 'utf8'), 'base64')
    if (!verify(null, readFileSync(at(name)), createPublicKey(key!), signature))
      fail(`${name}.sig does not verify`, 1)
  }
  const own = artifacts.find((one) => one.kind === 'linux-x64' && isMade(one))
  if (own) {
    const cache = mkdtempSync(join(tmpdir(), 'svc-release-'))
    const env = { ...process.env, XDG_CACHE_HOME: cache }
    const said = execFileSync(at(own.files[0]!), ['--version'], { encoding: 'utf8', env })
    rmSync(cache, { recursive: true })
    if (!said.startsWith(`svc/${version} `)) fail(`${own.files[0]} calls itself ${said}`, 1)
  }
  const changed = checkout.unstaged()
  if (changed.length > 0)
    fail(
      `The build has changed the checkout:\n${checkout.shown(changed)}\n  Commit what is missing before the release`,
      1,
    )
}

function today(): string {
  return new Date().toISOString().slice(0, 10)
}

function tagText(): string {
  const { text } = firstSection(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'))!
  return `svc ${version}\n\n${text}\n`
}

function commandLine() {
  const usage = 'npm run release -- VERSION [--dry-run] [--key-file FILE] [--skip-tests] [--only KIND]...'
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        'dry-run': { type: 'boolean', default: false },
        // Never the key itself: others see the arguments of a process.
        'key-file': { type: 'string' },
        'skip-tests': { type: 'boolean', default: false },
        only: { type: 'string', multiple: true },
        out: { type: 'string' },
        builder: { type: 'string' },
        maintainer: { type: 'string' },
      },
    })
    const [version, ...more] = positionals
    if (version === undefined || more.length > 0) throw new Error('Name one version')
    if (values.builder !== undefined && !URL.canParse(values.builder))
      throw new Error(`--builder is a URI that says what builds, not ${JSON.stringify(values.builder)}`)
    const unknown = values.only?.find((kind) => !kinds.includes(kind))
    if (unknown !== undefined) throw new Error(`--only is one of ${kinds.join(', ')}, not ${unknown}`)
    return { values, version }
  } catch (error) {
    return fail(`${(error as Error).message}\n  ${usage}`, 2)
  }
}

function say(line: string): void {
  process.stdout.write(`${line}\n`)
}

function fail(message: string, code: number): never {
  process.stderr.write(`${message}\n`)
  process.exit(code)
}
