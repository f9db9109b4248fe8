import { spawn } from 'node:child_process'
import { chmodSync, existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { systemClock } from '../../src/core/time.ts'
import { addRelease } from '../agents/rollouts/records.ts'
import { hasOpenssl, listening } from '../cli/network.ts'
import { binary, Home } from '../cli/run.ts'
import { until } from '../daemon/process.ts'
import { onEveryDatabase } from '../databases.ts'
import { isSoak } from '../depth.ts'
import { startService, type TestService, usualLimits } from '../harness.ts'
import { type Block, blocksIn, runScript } from '../markdown-blocks.ts'
import { freePort } from '../postgres.ts'
import { TokenIssuer } from '../trust/issuer.ts'
import { outsideOf } from '../trust/trust-stage.ts'
import { eventOf, signedHeaders } from '../webhooks/signed.ts'
import { addOrgUser, buildWorld, type World } from '../world.ts'

const folder = fileURLToPath(new URL('../../docs/cookbook/', import.meta.url))
const textOf = (page: string) => readFileSync(join(folder, `${page}.md`), 'utf8')
const pages = globSync('*.md', { cwd: folder })
  .map((file) => file.slice(0, -3))
  .filter((page) => page !== 'README')
  .sort()

const issuers = {
  github: new TokenIssuer('https://token.actions.githubusercontent.com'),
  gitlab: new TokenIssuer('https://gitlab.com'),
  jenkins: new TokenIssuer('https://jenkins.example.com/oidc'),
}
const claims = {
  github: { sub: 'repo:bakery/tills', repository_id: '74291847', environment: 'production', run_id: '7' },
  gitlab: { sub: 'project', project_id: '20', ref: 'main', ref_type: 'branch', job_id: '8' },
  jenkins: { sub: 'https://jenkins.example.com/job/tills/' },
}

it('the cookbook lists every recipe', () => {
  const listed = [...textOf('README').matchAll(/^\| \[(.+)\.md\]\(\1\.md\)/gm)].map(([, page]) => page)
  expect(listed.sort()).toEqual(pages)
})

onEveryDatabase((kind, open) => {
  // What differs between the databases is decided below what these scripts see.
  describe.skipIf(!hasOpenssl || (kind === 'postgres' && !isSoak))('a recipe of the cookbook', () => {
    let service: TestService
    let world: World
    let home: Home

    beforeAll(async () => {
      service = await startService(open, {
        env: { ...usualLimits, OFFLINE_AFTER_SECONDS: '86400' },
        outside: { outbound: outsideOf(Object.values(issuers)) },
      })
      world = await buildWorld(service)
      const system = service.client(world.tokens.system)
      const { bakery } = world.orgs
      const name = { name: 'Blue Bakery', slug: 'blue-bakery' }
      await system.call(api.orgs.update, { params: { id: bakery.id }, body: name })
      await addOrgUser(service, 'tech', bakery.id)
      const soon = new Date(Date.now() + 7 * 86_400_000).toISOString()
      const key = { orgId: bakery.id, name: 'report', scopes: ['devices:read' as const], expiresAt: soon }
      await system.call(api.apiKeys.create, { body: key })
      await addRelease(service, '1.2.0')
      const silent = { last_seen_at: '2026-01-01T00:00:00.000Z', status: 'offline' }
      await service.storage.write((tx) =>
        tx.updateTable('devices').set(silent).where('id', '=', bakery.deviceId).execute(),
      )

      home = new Home({ SVC_URL: service.url, CI: 'true' })
      home.signIn(service.url, { accessToken: world.tokens.system })
      mkdirSync(join(home.path, 'bin'))
      const program = home.write('bin/svc', `#!/bin/sh\nexec '${process.execPath}' '${binary}' "$@"\n`)
      chmodSync(program, 0o755)
      home.env.PATH = `${join(home.path, 'bin')}:${process.env.PATH}`
      const agent = `svc enroll create --org blue-bakery --name Laptop | svc agent run --enrollment-key - --once
        svc devices list --org blue-bakery -q | xargs svc devices tag --add pilot`
      await run(
        { page: 'agent', script: agent, exits: [0] },
        { SVC_AGENT_STATE_DIR: join(home.path, 'agent') },
      )
    })
    afterAll(async () => {
      await service?.close()
      home?.remove()
    })

    async function run(block: Pick<Block, 'page' | 'script' | 'exits'>, env: Record<string, string> = {}) {
      const { code, output } = await runScript(block.script, { ...home.env, ...env }, env.PWD ?? home.path)
      expect(block.exits, `${block.page}:\n${block.script}\n${output}`).toContain(code)
    }

    /** What a job of a CI system finds in its environment: a home of its own, and a token. */
    async function environmentOf(job: keyof typeof issuers): Promise<Record<string, string>> {
      const place = join(home.path, job)
      mkdirSync(place, { recursive: true })
      const token = await issuers[job].token({ ...claims[job], aud: service.url }, systemClock())
      writeFileSync(join(place, 'token'), token)
      const own = {
        PWD: place,
        SVC_CONFIG_DIR: place,
        ORG_ID: home.read('org-id').trim(),
        BUILD_TAG: 'jenkins-9',
        POLICY_ID: existsSync(join(home.path, 'policy-id')) ? home.read('policy-id').trim() : '',
      }
      if (job === 'gitlab') return { ...own, SVC_OIDC_TOKEN: token, CI_JOB_ID: '8' }
      if (job === 'jenkins') return { ...own, TOKEN_FILE: join(place, 'token') }
      const runner = createServer((_, reply) => reply.end(JSON.stringify({ value: token })))
      const port = await listening(runner)
      onTestFinished(() => void runner.close())
      return {
        ...{ ...own, GITHUB_RUN_ID: '7', ACTIONS_ID_TOKEN_REQUEST_TOKEN: 'runner' },
        ACTIONS_ID_TOKEN_REQUEST_URL: `http://127.0.0.1:${port}/idtoken?api-version=2.0`,
      }
    }

    /** The bridge of the page takes what is signed, and nothing else. */
    async function relays() {
      const texts: string[] = []
      const chat = createServer(async (request, reply) => {
        texts.push((JSON.parse(await text(request)) as { text: string }).text)
        reply.end()
      })
      const port = await freePort()
      const bridge = spawn(process.execPath, ['bridge.mjs'], {
        env: { ...home.env, PORT: String(port), CHAT_URL: `http://127.0.0.1:${await listening(chat)}` },
        cwd: home.path,
      })
      onTestFinished(() => {
        bridge.kill()
        chat.close()
      })
      const url = `http://127.0.0.1:${port}`
      const answers = () =>
        fetch(url, { method: 'POST', body: '{}' }).then(
          ({ status }) => status,
          () => 0,
        )
      await until(async () => (await answers()) === 401)
      const body = JSON.stringify(eventOf('alert.triggered', { title: 'Disk full' }))
      const by = home.read('webhook.secret').trim()
      const deliver = (headers: Record<string, string>) => fetch(url, { method: 'POST', headers, body })
      expect((await deliver(signedHeaders(body, { by }))).status).toBe(204)
      expect((await deliver(signedHeaders(body, { by: 'another' }))).status).toBe(401)
      expect((await deliver(signedHeaders(body, { by, at: Date.now() - 600_000 }))).status).toBe(401)
      expect(texts).toEqual(['alert.triggered: Disk full'])
    }

    const done: Record<string, () => unknown> = {
      'onboard-customers': () => expect(home.read('keys/garden-centre.key').trim()).toMatch(/^[0-9a-f]{64}$/),
      'rotate-expiring-keys': () => expect(home.read('keys/report.key').trim()).toMatch(/^svc_/),
      'nightly-export': () => {
        const [file] = globSync('export/devices-*.ndjson', { cwd: home.path })
        expect(home.read(file!).trim().split('\n').length).toBeGreaterThan(2)
      },
      'offboard-technician': () => expect(home.json('proof/removal.proof.json')).toHaveProperty('size'),
      'yearly-audit': () => expect(globSync('audit/*.html', { cwd: home.path })).toHaveLength(1),
      'ship-logs': () => expect(home.read('logs/audit.ndjson')).toContain('"action"'),
      'webhook-to-chat': relays,
      'lost-machines': () => expect(existsSync(join(home.path, 'found.key'))).toBe(true),
    }

    it.each(pages)('%s', { timeout: 120_000 }, async (page) => {
      for (const block of blocksIn(page, textOf(page))) {
        expect([page, block.language]).toEqual([page, 'sh'])
        const { job } = block
        const isCi = job !== undefined && Object.hasOwn(issuers, job)
        const env = isCi ? await environmentOf(job as keyof typeof issuers) : {}
        await run(block, { ...env, VERSION: '1.2.0', BRIDGE_URL: 'https://hooks.example.com/' })
      }
      await done[page]?.()
    })
  })
})
