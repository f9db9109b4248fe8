import { spawn } from 'node:child_process'
import { chmodSync, existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { type Client, createClient } from '../../src/core/client.ts'
import { systemClock } from '../../src/core/time.ts'
import { addRelease } from '../agents/rollouts/records.ts'
import { hasOpenssl, listening } from '../cli/network.ts'
import { binary, Home } from '../cli/run.ts'
import { until } from '../daemon/process.ts'
import { aboveStorage } from '../databases.ts'
import { depth } from '../depth.ts'
import { startService, type TestService, usualLimits } from '../harness.ts'
import { type Block, blocksIn, runScript } from '../markdown-blocks.ts'
import { freePort } from '../postgres.ts'
import { TokenIssuer } from '../trust/issuer.ts'
import { outsideOf } from '../trust/trust-fixture.ts'
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

/** The number of customers to onboard. */
const customers = depth(8, 50)

type Identity = { deviceId: string }

it('the cookbook lists every recipe', () => {
  const listed = [...textOf('README').matchAll(/^\| \[(.+)\.md\]\(\1\.md\)/gm)].map(([, page]) => page)
  expect(listed.sort()).toEqual(pages)
})

aboveStorage((_, open) => {
  describe.skipIf(!hasOpenssl)('a recipe of the cookbook', () => {
    let service: TestService
    let world: World
    let home: Home
    let system: Client
    let technician: string
    let knownKey: string
    let reports: string[]

    beforeAll(async () => {
      service = await startService(open, {
        env: { ...usualLimits, OFFLINE_AFTER_SECONDS: '86400' },
        outside: { outbound: outsideOf(Object.values(issuers)) },
      })
      world = await buildWorld(service)
      // The limits of whoever runs the recipes hold for the checks as well.
      system = createClient({
        url: service.url,
        headers: { authorization: `Bearer ${world.tokens.system}` },
        rateLimit: { patience: 120_000, onWait: () => {} },
      })
      const { bakery } = world.orgs
      const name = { name: 'Blue Bakery', slug: 'blue-bakery' }
      await system.call(api.orgs.update, { params: { id: bakery.id }, body: name })
      technician = await addOrgUser(service, 'tech', bakery.id)
      const change = { params: { id: bakery.siteId }, body: { name: 'Old Mill' } }
      await service.client(technician).call(api.sites.update, change)
      const soon = new Date(Date.now() + 7 * 86_400_000).toISOString()
      const key = { orgId: bakery.id, name: 'report', scopes: ['devices:read' as const], expiresAt: soon }
      const known = await system.call(api.apiKeys.create, { body: key })
      const namesake = await system.call(api.apiKeys.create, { body: key })
      knownKey = known.key
      reports = [known.id, namesake.id]
      await addRelease(service, '1.2.0')
      const log = { level: 'error', component: 'disk', message: 'I/O error' } as const
      await service.client(bakery.agentToken).call(api.diagnosticLogs.submit, {
        params: { id: bakery.agentId },
        body: { logs: [{ ...log, timestamp: new Date().toISOString() }] },
      })

      home = new Home({ SVC_URL: service.url, CI: 'true' })
      home.signIn(service.url, { accessToken: world.tokens.system })
      mkdirSync(join(home.path, 'bin'))
      const program = home.write('bin/svc', `#!/bin/sh\nexec '${process.execPath}' '${binary}' "$@"\n`)
      chmodSync(program, 0o755)
      home.env.PATH = `${join(home.path, 'bin')}:${process.env.PATH}`
      const agent = `svc enroll create --org blue-bakery --name Laptop | svc agent run --enrollment-key - --once
        svc devices list --org blue-bakery -q | xargs svc devices tag --add pilot`
      await run({ page: 'agent', script: agent, exits: [0] }, machine())
      const silent = { last_seen_at: '2026-01-01T00:00:00.000Z', status: 'offline' }
      const { deviceId } = identityOf(machine())
      await service.storage.write((tx) =>
        tx.updateTable('devices').set(silent).where('id', '=', deviceId).execute(),
      )
    })
    afterAll(async () => {
      await service?.close()
      home?.remove()
    })

    async function run(block: Pick<Block, 'page' | 'script' | 'exits'>, env: Record<string, string> = {}) {
      const place = env.PWD ?? home.path
      const { code, output } = await runScript(block.script, { ...home.env, ...env }, place, 240_000)
      expect(block.exits, `${block.page}:\n${block.script}\n${output}`).toContain(code)
    }

    /** Where the agent of a machine has its state. */
    const machine = (name = 'agent') => ({ SVC_AGENT_STATE_DIR: join(home.path, name) })
    const identityOf = (place: ReturnType<typeof machine>) =>
      JSON.parse(readFileSync(join(place.SVC_AGENT_STATE_DIR, 'identity.json'), 'utf8')) as Identity

    /** What a job of a CI system finds in its environment: a home of its own, and a token. */
    async function ciEnvironment(job: keyof typeof issuers): Promise<Record<string, string>> {
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
        ...own,
        GITHUB_RUN_ID: '7',
        ACTIONS_ID_TOKEN_REQUEST_TOKEN: 'runner',
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

    /** Who runs a block, and where; and what this person has done meanwhile. */
    const jobs: Record<string, () => Record<string, string> | Promise<Record<string, string>>> = {
      github: () => ciEnvironment('github'),
      gitlab: () => ciEnvironment('gitlab'),
      jenkins: () => ciEnvironment('jenkins'),
      machine: () => machine(),
      reinstalled: () => machine('reinstalled'),
      auditor: () => ({ SVC_TOKEN: world.tokens.bakeryAuditor }),
      'many-customers': () => {
        const known = home.read('customers.csv')
        const more = Array.from({ length: customers - 3 }, (_, n) => `Customer ${n},customer-${n},${n + 1}\n`)
        home.write('customers.csv', known + more.join(''))
        return {}
      },
    }

    const program = (key: string) => service.client(undefined, { 'x-api-key': key })
    const isRefused = { status: 401 }
    const keyIn = (path: string) => home.read(path).trim()
    const lines = (path: string) =>
      home
        .read(path)
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as Record<string, unknown>)
    const rowsOf = (path: string) =>
      keyIn(path)
        .split('\n')
        .slice(1)
        .map((line) => line.split(','))
    const ofBakery = () => ({ query: { orgId: world.orgs.bakery.id, limit: 100 } })

    const done: Record<string, () => unknown> = {
      async 'ci-enrollment-keys'() {
        const { data } = await system.call(api.enrollmentKeys.list, ofBakery())
        const made = data.filter(({ name }) => name.startsWith('till '))
        expect(made.map(({ name, maxUsage }) => [name, maxUsage]).sort()).toEqual([
          ['till 7', 5],
          ['till 8', 1],
          ['till jenkins-9', 1],
        ])
        for (const job of Object.keys(issuers)) expect(keyIn(`${job}/till.key`)).toMatch(/^[0-9a-f]{64}$/)
        // By the jobs, which are programs in the log, and not by the person who made the policies.
        const query = { ...ofBakery().query, action: 'enrollment_key.create', resource: 'till ' }
        const { data: entries } = await system.call(api.auditLogs.list, { query })
        expect(entries.map(({ user }) => user.role)).toEqual(['api_key', 'api_key', 'api_key'])
      },
      async 'configuration-in-git'() {
        const query = { orgId: world.orgs.bakery.id }
        const { data: applies } = await system.call(api.configurationApplies.list, { query })
        const [back, made] = applies
        expect(made).toMatchObject({ set: 'pipeline', revision: expect.any(String), totals: { create: 1 } })
        expect(back).toMatchObject({ set: 'pipeline', rollsBack: made!.id, totals: { delete: 1 } })
        const { data: scripts } = await system.call(api.scripts.list, ofBakery())
        expect(scripts.map(({ name }) => name)).not.toContain('Clear temporary files')
        const { data: sets } = await system.call(api.configuration.sets, { query })
        // The other one owns nothing any more.
        expect(sets.map(({ name }) => name)).toEqual(['production'])
        await system.call(api.sites.update, {
          params: { id: world.orgs.bakery.siteId },
          body: { name: 'By hand' },
        })
        const [nightly] = blocksIn('', textOf('configuration-in-git')).slice(-1)
        await run({ ...nightly!, exits: [1] })
      },
      async 'invite-from-directory'() {
        const query = { ...ofBakery().query, status: 'invited' as const }
        const { data } = await system.call(api.users.list, { query })
        expect(data.map(({ email, roleName }) => [email, roleName]).sort()).toEqual([
          ['ada@bakery.example', 'Org Admin'],
          ['bob@bakery.example', 'Org Viewer'],
          ['eve@bakery.example', 'Org Admin'],
        ])
      },
      async 'lost-machines'() {
        const [found, reinstalled] = [identityOf(machine()), identityOf(machine('reinstalled'))]
        expect(keyIn('lost-ids')).toBe(found.deviceId)
        const show = (id: string) => system.call(api.devices.show, { params: { id } })
        expect(await show(found.deviceId)).toMatchObject({ status: 'online', tags: ['pilot'] })
        expect(await show(reinstalled.deviceId)).toMatchObject({ status: 'online' })
        expect(reinstalled.deviceId).not.toBe(found.deviceId)
        expect((await show(world.orgs.bakery.deviceId)).status).not.toBe('decommissioned')
      },
      'nightly-export'() {
        const [devices] = globSync('export/devices-*.ndjson', { cwd: home.path })
        expect(lines(devices!).map(({ id }) => id)).toContain(world.orgs.bakery.deviceId)
        const [audit] = globSync('export/audit-*.ndjson', { cwd: home.path })
        expect(home.read(audit!)).toContain('"device.create"')
      },
      async 'offboard-technician'() {
        await expect(service.client(technician).call(api.auth.me)).rejects.toMatchObject(isRefused)
        await expect(program(knownKey).call(api.devices.list)).rejects.toMatchObject(isRefused)
        const rotated = globSync('rotated/tech@example.com/*', { cwd: home.path })
        expect(rotated.length).toBeGreaterThan(1)
        for (const path of rotated) await program(keyIn(path)).call(api.auth.caller)
        const { data } = await system.call(api.users.list, ofBakery())
        expect(data.map(({ email }) => email)).not.toContain('tech@example.com')
        const did = lines('proof/tech@example.com/what-they-did.ndjson').map(({ action }) => action)
        expect(did).toEqual(['site.update'])
        expect(lines('proof/tech@example.com/what-was-done.ndjson').map(({ action }) => action)).toContain(
          'user.remove',
        )
        expect(home.json('proof/tech@example.com/removal.proof.json')).toHaveProperty('size')
        expect(home.read('proof/tech@example.com/chain.ndjson')).toContain('"user.remove"')
      },
      async 'onboard-customers'() {
        const { stdout } = await home.run(['orgs', '--all', '--json'])
        const { data } = JSON.parse(stdout) as { data: { id: string; slug: string; maxDevices: number }[] }
        const places = new Map(data.map(({ slug, maxDevices }) => [slug, maxDevices]))
        const wanted = rowsOf('customers.csv')
        expect(wanted).toHaveLength(customers)
        for (const [, slug, maxDevices] of wanted) {
          expect([slug, places.get(slug!)]).toEqual([slug, Number(maxDevices)])
          expect(keyIn(`keys/${slug}.key`)).toMatch(/^[0-9a-f]{64}$/)
        }
        const garden = data.find(({ slug }) => slug === 'garden-centre')!
        const { data: sites } = await system.call(api.sites.list, { query: { orgId: garden.id } })
        expect(sites.map(({ name }) => name).sort()).toEqual(['Greenhouse', 'Office'])
      },
      async 'roll-out-an-agent'() {
        const { data } = await system.call(api.agentRollouts.list, { query: { limit: 1 } })
        expect(data).toMatchObject([{ version: '1.2.0', status: 'aborted', waves: { length: 4 } }])
        const query = { resource: 'agent_rollout', limit: 100 }
        const { data: entries } = await system.call(api.auditLogs.list, { query })
        expect(entries.map(({ action }) => action.split('.').at(-1)).sort()).toEqual([
          'abort',
          'halt',
          'resume',
          'start',
        ])
      },
      async 'rotate-expiring-keys'() {
        const keys = reports.map((id) => keyIn(`keys/${id}.key`))
        for (const key of keys) await program(key).call(api.devices.list)
        expect(new Set([knownKey, ...keys]).size).toBe(3)
        const { data } = await system.call(api.apiKeys.list, ofBakery())
        for (const id of reports) {
          const { status, expiresAt } = data.find((one) => one.id === id)!
          expect(status).toBe('active')
          expect((Date.parse(expiresAt!) - Date.now()) / 86_400_000).toBeCloseTo(90, 0)
        }
      },
      'ship-logs'() {
        expect(home.read('logs/audit.ndjson')).toContain('"action"')
        expect(lines('logs/devices.ndjson').map(({ message }) => message)).toContain('I/O error')
      },
      async 'tag-by-filter'() {
        const { data } = await system.call(api.devices.list, { query: { limit: 100 } })
        const tagged = data.filter(({ tags }) => tags.includes('linux'))
        expect(new Set(tagged.map(({ orgId }) => orgId))).toEqual(new Set([world.orgs.bakery.id]))
        expect(tagged.map(({ id }) => id)).toContain(identityOf(machine()).deviceId)
      },
      'webhook-to-chat': relays,
      'yearly-audit'() {
        expect(globSync('audit/*.html', { cwd: home.path })).toHaveLength(1)
        expect(home.read('audit/pins.json')).toContain(world.orgs.bakery.id)
      },
    }

    it('each recipe is checked for what it has done', () => {
      expect(Object.keys(done).sort()).toEqual(pages)
    })

    it.each(pages)('%s', { timeout: 300_000 }, async (page) => {
      for (const block of blocksIn(page, textOf(page))) {
        expect([page, block.language]).toEqual([page, 'sh'])
        const env = block.job === undefined ? {} : await jobs[block.job]!()
        await run(block, { ...env, VERSION: '1.2.0', BRIDGE_URL: 'https://hooks.example.com/' })
      }
      await done[page]!()
    })
  })
})
