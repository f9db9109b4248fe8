import { readdirSync } from 'node:fs'
import { createServer } from 'node:http'
import { join, relative } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { listening } from '../cli/network.ts'
import { failureOf, Home } from '../cli/run.ts'
import { inTurn } from '../databases.ts'
import { testClock } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { gitlab, run, start } from './trust-fixture.ts'

const sessionFile = ({ path, config }: Home) =>
  relative(path, join(config, 'sessions', readdirSync(join(config, 'sessions'))[0]!))

inTurn((open) => {
  /** A service, and an empty home of a CI job. */
  async function begin() {
    const stage = await start(open, {}, testClock(new Date().toISOString()))
    const home = new Home({ SVC_URL: stage.service.url, SVC_CREDENTIAL_STORE: 'file', CI: 'true' })
    onTestFinished(() => home.remove())
    const policy = await stage.create({ audience: stage.service.url })
    const token = (claims = {}) => stage.tokenOf({ aud: stage.service.url, ...claims })
    const login = (...args: string[]) => home.run(['login', '--oidc', ...args, '--org', stage.bakery.id])
    return { ...stage, home, policy, token, login }
  }
  type Stage = Awaited<ReturnType<typeof begin>>

  /** Expects that the job can create a key, and that a machine can enroll with it. */
  async function expectKeyCreated({ home, service, bakery, policy }: Stage): Promise<void> {
    const news = await newEntries(service)
    const { code, stdout } = await home.run(['enroll', 'create', '--name', 'till', '--max-usage', '2'])
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^[0-9a-f]{64}\n$/)])
    const machine = { ...api.agents.enroll.example, enrollmentKey: stdout.trim() }
    expect((await service.client().call(api.agents.enroll, { body: machine })).orgId).toBe(bakery.id)
    const [minted] = await news()
    expect(minted).toMatchObject({ action: 'enrollment_key.create', actorId: policy.id })
    expect(minted?.details.workload).toMatchObject({ policy: 'Releases' })
  }

  describe('svc login --oidc', () => {
    it('signs in a GitHub Actions job, which creates a key', async () => {
      const stage = await begin()
      const { home, issuer, clock, login } = stage
      // Like GitHub, it gives tokens for any requested audience.
      const server = createServer(async (request, reply) => {
        const aud = new URL(request.url ?? '', 'http://x').searchParams.get('audience') ?? ''
        const isJob = request.headers.authorization === 'Bearer runner'
        reply.writeHead(isJob ? 200 : 401)
        reply.end(JSON.stringify({ value: await issuer.token({ ...run, aud }, clock()) }))
      })
      home.env.ACTIONS_ID_TOKEN_REQUEST_URL = `http://127.0.0.1:${await listening(server)}/token?v=1`
      home.env.ACTIONS_ID_TOKEN_REQUEST_TOKEN = 'runner'
      onTestFinished(() => void server.close())
      expect((await login('github')).code).toBe(0)
      await expectKeyCreated(stage)
      expect((await login('github')).code).toBe(0)
    })

    it('signs in a GitLab job, which creates a key', async () => {
      const stage = await begin()
      const { home, other, clock, change, policy, login, service } = stage
      await change(policy.id, { issuer: gitlab, claims: { project_id: '20', ref: 'main' } })
      const claims = { project_id: '20', ref: 'main', sub: 'project_path:bakery/tills', aud: service.url }
      home.env.SVC_OIDC_TOKEN = await other.token(claims, clock())
      expect((await login('gitlab')).code).toBe(0)
      await expectKeyCreated(stage)
    })

    it('signs in with the token in a file, once, with the permissions of its policy only', async () => {
      const stage = await begin()
      const { home, token, login } = stage
      const file = home.write('token', `${await token()}\n`)
      expect((await login('file', '--oidc-file', file)).code).toBe(0)
      await expectKeyCreated(stage)
      const who = JSON.parse((await home.run(['whoami', '--json'])).stdout)
      expect(who).toMatchObject({ kind: 'workload', id: stage.policy.id, name: 'Releases', email: null })
      expect(who).toMatchObject({ orgId: stage.bakery.id, run: expect.any(String) })
      const { accessToken } = home.json<{ accessToken: string }>(sessionFile(home))
      const given = await home.run(['whoami', '--jq', '.kind'], { env: { SVC_TOKEN: accessToken } })
      expect(given.stdout).toBe('workload\n')
      const devices = await home.run(['devices', '--json'])
      expect([devices.code, failureOf(devices).code]).toEqual([5, 'forbidden'])
      const large = await home.run(['enroll', 'create', '--name', 'a', '--max-usage', '6'])
      expect([large.code, large.stderr]).toEqual([
        5,
        expect.stringContaining('--max-usage: must be at most 5'),
      ])
      const again = await login('file', '--oidc-file', file, '--json')
      expect([again.code, failureOf(again).code]).toEqual([4, 'federated_token_refused'])
      expect(failureOf(again).hint).toContain('each token signs in once')
    })

    it('ends when the policy is deactivated', async () => {
      const stage = await begin()
      const { home, token, login, change, policy } = stage
      home.env.JOB_TOKEN = await token()
      expect((await login('env', '--oidc-env', 'JOB_TOKEN')).code).toBe(0)
      expect((await home.run(['enroll'])).code).toBe(0)
      await change(policy.id, { status: 'inactive' })
      const over = await home.run(['enroll', '--json'])
      expect([over.code, failureOf(over).hint]).toEqual([
        4,
        expect.stringContaining('svc login --oidc env --oidc-env JOB_TOKEN'),
      ])
    })
  })
})
