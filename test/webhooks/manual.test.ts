import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { withEventTable } from '../../src/cli/webhooks/event-table.ts'
import { checkSignatures, nativeSignature } from '../../src/core/webhook-signature.ts'
import { secret, signedHeaders, without } from './signed.ts'

const page = readFileSync(new URL('../../man/svc-webhooks.7.md', import.meta.url), 'utf8')
const snippet = (language: string): string =>
  new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 's').exec(page)?.[1] ?? ''

const folder = mkdtempSync(join(tmpdir(), 'svc-manual-'))
afterAll(() => rmSync(folder, { recursive: true }))

const body = '{"data":{"name":"Küche"}}'
const now = Date.now()
const good = signedHeaders(body, { at: now })
const before = 'the one before'

type Case = [what: string, isGenuine: boolean, headers: Record<string, string>, body: string]

const cases: Case[] = [
  ['a delivery', true, good, body],
  ['another body', false, good, body.replace('K', 'k')],
  ['another secret', false, signedHeaders(body, { at: now, by: 'another' }), body],
  ['one signed long ago', false, signedHeaders(body, { at: now - 400_000 }), body],
  ['one signed far ahead', false, signedHeaders(body, { at: now + 400_000 }), body],
  ['no signature', false, without(good, /service-signature$/), body],
  ['no timestamp', false, without(good, /signature-timestamp/), body],
  ['an invalid timestamp', false, { ...good, 'x-service-signature-timestamp': 'now' }, body],
  [
    'one signed with this secret and the next',
    true,
    {
      ...signedHeaders(body, { at: now, by: 'the next' }),
      'x-service-previous-signature': nativeSignature(secret, String(now), body),
    },
    body,
  ],
  [
    'one signed with this secret and the one before',
    true,
    { ...good, 'x-service-previous-signature': nativeSignature(before, String(now), body) },
    body,
  ],
]

describe('the examples and lists in man/svc-webhooks.7', () => {
  it('have at most ten lines of code', () => {
    for (const language of ['js', 'python']) {
      const lines = snippet(language).trimEnd().split('\n')
      expect(lines.length).toBeGreaterThan(5)
      expect(lines.length).toBeLessThanOrEqual(10)
    }
  })

  it('verify deliveries in Node', async () => {
    const file = join(folder, 'verify.mjs')
    writeFileSync(file, snippet('js'))
    const { isGenuine } = (await import(pathToFileURL(file).href)) as {
      isGenuine(secret: string, headers: Record<string, string>, body: Buffer): boolean
    }
    const found = cases.map(([what, , headers, text]) => [
      what,
      isGenuine(secret, headers, Buffer.from(text)),
    ])
    expect(found).toEqual(cases.map(([what, isIt]) => [what, isIt]))
  })

  const hasPython = spawnSync('python3', ['--version']).status === 0
  it.runIf(hasPython)('verify deliveries in Python', () => {
    const script = `${snippet('python')}
import json, sys
for secret, headers, body in json.load(sys.stdin): print(is_genuine(secret, headers, body.encode()))
`
    const input = JSON.stringify(cases.map(([, , headers, text]) => [secret, headers, text]))
    const { stdout, stderr } = spawnSync('python3', ['-c', script], { input, encoding: 'utf8' })
    expect(stderr).toBe('')
    expect(stdout.trim().split('\n')).toEqual(cases.map(([, isIt]) => (isIt ? 'True' : 'False')))
  })

  it('contain an example with valid signatures', () => {
    const [given] = /(?<=^ {4})\{"id".*$/m.exec(page) ?? ['']
    const lines = [...page.matchAll(/^ {4}(X-Service-Signature\S*|webhook-\S+): (.*)$/gm)]
    const headers = Object.fromEntries(lines.map(([, name, value]) => [name!.toLowerCase(), value]))
    expect(page).toContain(`secret \`${secret}\``)
    expect(checkSignatures(secret, headers, given)).toEqual({
      native: 'valid',
      standard: 'valid',
      signedAt: Date.parse(JSON.parse(given).timestamp),
    })
  })

  it('list every event type', () => {
    expect(page, 'npm run build:man writes them').toBe(withEventTable(page))
  })

  it('list every header of a delivery', () => {
    const listed = [...page.matchAll(/^\| (X-Service-\S+|webhook-\S+|Content-Type) \|/gm)].map(
      ([, name]) => name!,
    )
    const named = new Set(listed.map((name) => name.toLowerCase()))
    expect(Object.keys(good).filter((name) => !named.has(name))).toEqual([])
  })
})
