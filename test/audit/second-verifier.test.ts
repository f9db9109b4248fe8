import { execFile, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { headerLine, trailerLine } from '../../src/audit/chain.ts'
import { signingKeyOf, signSuccession } from '../../src/audit/checkpoints/checkpoint.ts'
import { verifierText } from '../../src/audit/checkpoints/signed-note.ts'
import type { Verdict } from '../../src/audit/verifier/verdict.ts'
import { Home } from '../cli/run.ts'
import {
  anchorOver,
  bundle,
  kindOf,
  noteOver,
  orgId,
  otherOrg,
  otherSeed,
  sealed,
  seed,
  time,
  verified,
} from './bundles.ts'

const script = fileURLToPath(new URL('./verify.py', import.meta.url))
const noPython = spawnSync('python3', ['--version']).status !== 0
const folder = mkdtempSync(join(tmpdir(), 'svc-second-'))
const home = new Home()
afterAll(() => {
  rmSync(folder, { recursive: true, force: true })
  home.remove()
})

type Found = { verdict: string; kind: string | null; seq: number | null; code: number | null }

function inPython(args: string[]): Promise<Found> {
  return new Promise((resolve, reject) => {
    const child = execFile('python3', [script, ...args], (_, stdout, stderr) => {
      if (stdout === '') reject(new Error(stderr))
      else resolve({ ...JSON.parse(stdout), code: child.exitCode })
    })
  })
}

/** Verifies many files in one process, each with its own exit code. */
const each = `
import runpy, sys
script, keys, *files = sys.argv[1:]
for file in files:
    sys.argv = [script, file, keys]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        print(end.code)
`

function allInPython(paths: string[]): Found[] {
  const { stdout, stderr } = spawnSync('python3', ['-c', each, script, keys, ...paths], { encoding: 'utf8' })
  const lines = stdout.trim().split('\n')
  if (lines.length !== 2 * paths.length) throw new Error(stderr)
  return paths.map((_, at) => ({ ...JSON.parse(lines[2 * at]!), code: Number(lines[2 * at + 1]) }))
}

async function inSvc([file, keys]: string[]): Promise<Found> {
  const flags = keys === undefined ? [] : ['--key', keys]
  const { stdout, stderr, code } = await home.run(['audit', 'verify', file!, '--tree', '--json', ...flags])
  if (stdout === '') return { verdict: 'unverifiable', kind: JSON.parse(stderr).error.code, seq: 1, code }
  return found(JSON.parse(stdout).chains[0], code)
}

const found = (verdict: Verdict, code: number | null): Found =>
  verdict.verdict === 'sound'
    ? { verdict: 'sound', kind: null, seq: null, code }
    : { verdict: verdict.verdict, kind: verdict.fault.kind, seq: verdict.fault.seq, code }

const codes = { sound: 0, tampered: 1, unverifiable: 9 }

const write = (name: string, text: string | Buffer): string => {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}

const key = signingKeyOf(seed, orgId)
const keys = write('keys', `# of the service\n\n${verifierText(key)} # this one\n`)
const bare = write('bare', `${key.publicKey.toString('base64')}\n`)
const several = write('several', `${verifierText(signingKeyOf(otherSeed, null))}\n${verifierText(key)}\n`)
const foreign = write('foreign', `${signingKeyOf(otherSeed, orgId).publicKey.toString('base64')}\n`)
const noKey = write('none', '# nothing\n')
const garbled = write('garbled', `${verifierText(key).replace('+', '-')}\n`)

const entries = sealed(12)
const others = sealed(12, () => ({}), otherOrg)
const good = bundle(entries)
const later = Buffer.alloc(32, 3)
const succession = signSuccession(seed, later, time)
const halfSigned = `${succession.split('\n— ').slice(0, 2).join('\n— ')}\n`
const swap = (lines: string[], a: number, b: number) => lines.with(a, lines[b]!).with(b, lines[a]!)
const withNote = (lines: string[], note: string) =>
  lines.with(-1, trailerLine(JSON.parse(lines.at(-1)!).head, note))
const pruned = bundle(entries, { pruned: 5 })
const anchored = (more: object) => pruned.with(0, headerLine(orgId, more))
const { note, tree } = anchorOver(entries.slice(0, 5), seed)

const files: [name: string, lines: string[], expected: string][] = [
  ['whole', good, 'sound'],
  ['empty chain', bundle([]), 'sound'],
  [
    'system chain',
    bundle(
      sealed(3, () => ({}), null),
      { org: null },
    ),
    'sound',
  ],
  ['without a line end', good.with(-1, good.at(-1)!.trimEnd()), 'sound'],
  ['pruned', pruned, 'sound'],
  ['all pruned', bundle(entries, { pruned: 12 }), 'sound'],
  [
    'after a change of keys',
    bundle(entries, { by: later, pruned: 3, anchoredBy: seed, successions: [succession] }),
    'sound',
  ],
  ['half a succession', bundle(entries, { by: later, successions: [halfSigned] }), 'altered'],
  ['another key', bundle(entries, { by: otherSeed }), 'wrong_key'],
  ['another key, altered', bundle(entries, { by: otherSeed }).with(4, 'hello\n'), 'unreadable'],
  ['unsigned', bundle(entries, { by: null }), 'unsigned'],
  ['altered', good.with(4, good[4]!.replace('site.create', 'site.creatf')), 'altered'],
  ['missing', good.toSpliced(4, 2), 'missing'],
  ['inserted', good.toSpliced(4, 0, good[2]!), 'inserted'],
  ['inserted from later', good.toSpliced(4, 0, good[8]!), 'inserted'],
  ['something between', good.toSpliced(4, 0, 'hello\n'), 'inserted'],
  ['something instead', good.with(4, 'hello\n'), 'unreadable'],
  ['an empty line', good.toSpliced(4, 0, '\n'), 'inserted'],
  ['swapped', swap(good, 4, 9), 'reordered'],
  ['relinked', good.with(4, bundle(sealed(12, (at) => (at === 3 ? { action: 'x' } : {})))[4]!), 'relinked'],
  ['foreign', good.with(4, bundle(others, { org: otherOrg })[4]!), 'foreign'],
  ['shorter', good.toSpliced(-2, 1), 'truncated'],
  ['shorter, trailer fitted', withNote(bundle(entries.slice(0, 9)), noteOver(entries, seed)), 'truncated'],
  ['longer', withNote(good, noteOver(entries.slice(0, 9), seed)), 'inserted'],
  ['rewritten', withNote(bundle(sealed(12, () => ({ action: 'x' }))), noteOver(entries, seed)), 'rewritten'],
  ['checkpoint of another', withNote(good, noteOver(others, seed, 'checkpoint', otherOrg)), 'foreign'],
  [
    'checkpoint changed',
    withNote(good, noteOver(entries, seed).replace('time 2026', 'time 2027')),
    'altered',
  ],
  ['anchor as checkpoint', withNote(good, noteOver(entries, seed, 'anchor')), 'unreadable'],
  ['anchor of another', anchored({ anchor: anchorOver(others.slice(0, 5), seed, otherOrg) }), 'foreign'],
  ['anchor by another key', anchored({ anchor: anchorOver(entries.slice(0, 5), otherSeed) }), 'wrong_key'],
  ['anchor with another tree', anchored({ anchor: { note, tree: tree.toReversed() } }), 'altered'],
  ['anchor with half a tree', anchored({ anchor: { note, tree: tree.slice(1) } }), 'altered'],
  [
    'checkpoint as anchor',
    anchored({ anchor: { note: noteOver(entries.slice(0, 5), seed), tree } }),
    'unanchored',
  ],
  ['no anchor', anchored({}), 'unanchored'],
  ['behind the end', [...good, good[3]!], 'inserted'],
  ['half a line behind the end', [...good, '{"checksum"'], 'unreadable'],
  ['cut', good.slice(0, -1), 'unreadable'],
  ['header spelt otherwise', good.with(0, good[0]!.replace(',', ', ')), 'unreadable'],
  ['header that says more', good.with(0, good[0]!.replace('}', ',"more":1}')), 'unreadable'],
  ['nothing', [], 'unreadable'],
]

describe.skipIf(noPython)('a second verifier, written from the manual', () => {
  it('has at most 200 lines', () => {
    expect(readFileSync(script, 'utf8').trimEnd().split('\n').length).toBeLessThanOrEqual(200)
  })

  it('has the same verdicts as the first', () => {
    const second = allInPython(files.map(([name, lines]) => write(`${name}.ndjson`, lines.join(''))))
    for (const [at, [name, lines, expected]] of files.entries()) {
      const verdict = verified(lines, { keys: [key.publicKey], tree: true })
      expect(kindOf(verdict), name).toBe(expected)
      expect(second[at], name).toEqual(found(verdict, codes[verdict.verdict]))
    }
  })

  it('has the same exit codes as the command', async () => {
    for (const name of ['whole', 'pruned', 'altered', 'wrong key', 'unsigned', 'cut']) {
      const [, lines = bundle(entries, { by: otherSeed })] = files.find(([one]) => one === name) ?? []
      const file = write('ending.ndjson', lines.join(''))
      expect(await inPython([file, keys]), name).toEqual(await inSvc([file, keys]))
    }
  })

  it('trusts the same keys', async () => {
    const file = write('good.ndjson', good.join(''))
    for (const [path, code] of [
      [bare, 0],
      [several, 0],
      [foreign, 9],
      [noKey, 9],
      [garbled, 9],
    ] as const) {
      const [first, second] = await Promise.all([inSvc([file, path]), inPython([file, path])])
      expect(second, path).toEqual(first)
      expect(second.code, path).toBe(code)
    }
    expect(await inPython([file])).toEqual(await inSvc([file]))
  })

  it('computes the same root', async () => {
    const wrong = noteOver(
      sealed(12, () => ({ action: 'x' })),
      seed,
    )
    const head = /head .*/.exec(noteOver(entries, seed))![0]
    const file = write('root.ndjson', withNote(good, wrong.replace(/head .*/, head)).join(''))
    const [first, second] = await Promise.all([inSvc([file]), inPython([file])])
    expect(second).toEqual(first)
    expect(second.kind).toBe('forked')
  })
})
