import { chmodSync, cpSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Ajv, type ValidateFunction } from 'ajv'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { kinds, sections } from '../../src/configuration/contract.ts'
import { systemClock } from '../../src/core/time.ts'
import { hasOpenssl } from '../cli/network.ts'
import { binary, Home } from '../cli/run.ts'
import { openMigrated, type TestDatabase } from '../databases.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { changed, dump } from '../laws/tables.ts'
import { runScript } from '../markdown-blocks.ts'
import { TokenIssuer } from '../trust/issuer.ts'
import { outsideOf } from '../trust/trust-fixture.ts'
import { buildWorld, type World } from '../world.ts'

const folder = fileURLToPath(new URL('../../examples/', import.meta.url))
const textOf = (file: string) => readFileSync(join(folder, file), 'utf8')

type Step = { uses?: string; run?: string }
type GithubJob = { permissions: Record<string, string>; steps: Step[]; environment?: string; if: string }
type Github = { permissions: object; on: Record<string, object>; jobs: Record<'plan' | 'apply', GithubJob> }
type GitlabJob = { rules: { if: string }[]; script: string[]; extends: string; environment?: string }
type Gitlab = Record<'plan' | 'apply', GitlabJob> & { '.configuration': { id_tokens: object } }

const github = parse(textOf('pipelines/github.yml')) as Github
const gitlab = parse(textOf('pipelines/gitlab-ci.yml')) as Gitlab

const issuers = {
  github: new TokenIssuer('https://token.actions.githubusercontent.com'),
  gitlab: new TokenIssuer('https://gitlab.com'),
}
const claims = {
  github: {
    plan: { sub: 'pull', repository_id: '74291847', event_name: 'pull_request', run_id: '7' },
    apply: {
      sub: 'push',
      repository_id: '74291847',
      event_name: 'push',
      environment: 'production',
      run_id: '8',
    },
  },
  gitlab: {
    plan: { sub: 'merge', project_id: '20', ref: 'feature', ref_type: 'branch', job_id: '7' },
    apply: {
      sub: 'main',
      project_id: '20',
      ref: 'main',
      ref_type: 'branch',
      ref_protected: 'true',
      job_id: '8',
    },
  },
}
const commandsOf = {
  github: (job: 'plan' | 'apply') => github.jobs[job].steps.flatMap(({ run }) => (run ? [run] : [])),
  gitlab: (job: 'plan' | 'apply') => gitlab[job].script,
}
const files = { github: 'pipelines/github.yml', gitlab: 'pipelines/gitlab-ci.yml' }

/** Of the published form of a pipeline; each file says where it is from. */
function validatorOf(name: 'github-workflow' | 'gitlab-ci'): ValidateFunction {
  const text = readFileSync(join(import.meta.dirname, 'pipeline-schemas', `${name}.json`), 'utf8')
  return new Ajv({ strict: false, validateFormats: false, allErrors: true }).compile(
    JSON.parse(text) as object,
  )
}

it('the examples are those that the README lists', () => {
  const listed = [...textOf('README.md').matchAll(/^\| \[(.+?)\]\((.+?)\)/gm)].map(([, name, path]) => {
    expect(path).toBe(name)
    return name!
  })
  const found = globSync('*/*', { cwd: folder, withFileTypes: true }).map((entry) => {
    const path = join(entry.parentPath, entry.name).slice(folder.length)
    return entry.isDirectory() ? `${path}/` : path
  })
  expect(found.sort()).toEqual(listed.sort())
})

describe('a pipeline', () => {
  it.each([
    ['github-workflow', files.github],
    ['gitlab-ci', files.gitlab],
  ] as const)('has the form that %s.json describes, and each wrong name would be found', (schema, file) => {
    const validate = validatorOf(schema)
    const pipeline = () => parse(textOf(file)) as Record<string, unknown> & { jobs?: Record<string, object> }
    expect([validate(pipeline()), validate.errors]).toEqual([true, null])
    for (const job of ['plan', 'apply']) {
      const wrong = pipeline()
      Object.assign((wrong.jobs ?? wrong)[job] as object, { scirpt: ['true'] })
      expect(validate(wrong)).toBe(false)
    }
  })

  it('of GitHub plans pull requests of its own repository, and applies the main branch, with no more rights than that', () => {
    expect(github.permissions).toEqual({})
    expect(Object.keys(github.on)).toEqual(['pull_request', 'push'])
    expect(github.on.push).toMatchObject({ branches: ['main'] })
    const { plan, apply } = github.jobs
    expect(plan.permissions).toEqual({ contents: 'read', 'id-token': 'write', 'pull-requests': 'write' })
    expect(apply.permissions).toEqual({ contents: 'read', 'id-token': 'write' })
    expect(plan.if).toContain('head.repo.full_name == github.repository')
    expect([plan.environment, apply.environment]).toEqual([undefined, 'production'])
    // What an expression contains is never a part of a script.
    const runs = [...commandsOf.github('plan'), ...commandsOf.github('apply')]
    expect(runs.filter((run) => run.includes('${{'))).toEqual([])
    for (const { steps } of [plan, apply])
      for (const step of steps)
        expect(Object.keys(step).filter((key) => key === 'uses' || key === 'run')).toHaveLength(1)
  })

  it('of GitLab plans merge requests and applies the main branch', () => {
    expect(gitlab['.configuration'].id_tokens).toEqual({ SVC_OIDC_TOKEN: { aud: '$SVC_URL' } })
    for (const job of ['plan', 'apply'] as const) expect(gitlab[job].extends).toBe('.configuration')
    expect(gitlab.plan.rules[0]!.if).toBe('$CI_PIPELINE_SOURCE == "merge_request_event"')
    expect(gitlab.apply.rules[0]!.if).toBe('$CI_COMMIT_BRANCH == "main"')
    expect([gitlab.plan.environment, gitlab.apply.environment]).toEqual([undefined, 'production'])
  })
})

describe.skipIf(!hasOpenssl)('an example', () => {
  let database: TestDatabase
  let service: TestService
  let world: World
  let home: Home
  beforeAll(async () => {
    database = await openMigrated('sqlite')
    service = await serviceOn(database, { outside: { outbound: outsideOf(Object.values(issuers)) } })
    world = await buildWorld(service)
    home = new Home({ SVC_URL: service.url, CI: 'true' })
    mkdirSync(join(home.path, 'bin'))
    const program = home.write('bin/svc', `#!/bin/sh\nexec '${process.execPath}' '${binary}' "$@"\n`)
    chmodSync(program, 0o755)
    home.env.PATH = `${join(home.path, 'bin')}:${process.env.PATH}`
    cpSync(join(folder, 'configuration'), join(home.path, 'examples'), { recursive: true })
  })
  afterAll(async () => {
    await service?.close()
    await database?.close()
    home?.remove()
  })

  const run = (script: string, env: Record<string, string>, place = home.path) =>
    runScript(script, { ...home.env, ...env }, place)
  const acme = () => ({ SVC_TOKEN: world.tokens.acme })
  /** The secrets that the files of the large partner name. */
  const secrets = Object.fromEntries(
    globSync('configuration/**/*.yaml', { cwd: folder })
      .flatMap((file) => [...textOf(file).matchAll(/\$\{env:(\w+)\}/g)])
      .map(([, name]) => [name, `hush ${name}`]),
  )

  it('of a large partner has every section, in files and folders, and dozens of organizations', async () => {
    const script = "svc config plan examples/large-partner --jq '[.changes[] | .section]' --json"
    const { output } = await run(script, { ...acme(), ...secrets })
    const found = (JSON.parse(output) as string[]).filter((section) => section === 'organizations')
    expect(found.length).toBeGreaterThan(30)
    const made = sections.filter((section) => kinds[section].whyNotCreated === undefined)
    expect([...new Set(JSON.parse(output) as string[])].sort()).toEqual(made.sort())
    expect(globSync('configuration/large-partner/*/*.yaml', { cwd: folder }).length).toBeGreaterThan(5)
    expect(Object.keys(secrets).length).toBeGreaterThan(3)
  })

  it.each([
    ['small-partner.yaml', ' --adopt'],
    ['large-partner', ''],
  ])('%s is planned, applied, and then nothing differs', async (file, adopt) => {
    const at = join('examples', file)
    const set = `--set ${file.replace('.yaml', '')}`
    const env = { ...acme(), ...secrets }
    const plan = await run(`svc config plan ${at} ${set}${adopt} --json`, env)
    expect(plan.output).toMatch(/"refused": ?0/)
    const script = `svc config apply ${at} ${set}${adopt} --yes && svc config diff ${at} ${set}`
    const done = await run(script, env)
    expect(done).toMatchObject({ code: 0 })
    expect(done.output).not.toContain('hush')
  })

  it('of a migration takes over everything and changes nothing', async () => {
    const place = join(home.path, 'migration')
    mkdirSync(place)
    const token = { SVC_TOKEN: world.tokens.globex }
    const before = await dump(service.storage)
    const { code, output } = await run(
      readFileSync(join(folder, 'configuration/migrate.sh'), 'utf8'),
      token,
      place,
    )
    expect({ code, output }).toMatchObject({ code: 0 })
    expect(output).toContain('Set production: no changes')
    const exported = parse(readFileSync(join(place, 'production.yaml'), 'utf8')) as Record<string, object[]>
    // Of every kind there was something, and all that has changed is whose it is.
    expect(Object.keys(exported).sort()).toEqual([...sections].sort())
    expect(Object.values(exported).filter((objects) => objects.length === 0)).toEqual([])
    const rows = changed(before, await dump(service.storage))
    expect(rows.filter((row) => !/^(config_\w+|idempotency_keys) \+ /.test(row))).toEqual([])
    const owned = rows.filter((row) => row.startsWith('config_objects + '))
    expect(owned).toHaveLength(Object.values(exported).flat().length)
  })

  it.each(['github', 'gitlab'] as const)(
    'of %s plans with a policy that may only plan, and applies with another',
    async (ci) => {
      const { id: orgId } = world.orgs.bakery
      const setUp = [...textOf(files[ci]).matchAll(/^# {2,}(svc trust create[\s\S]*?)\n(?!# {4,}-)/gm)]
      expect(setUp).toHaveLength(2)
      const policies: string[] = []
      for (const [, command] of setUp) {
        const text = command!.replace(/^# */gm, '').replace('--org blue-bakery', `--org ${orgId}`)
        const made = await run(`${text.replaceAll('\\\n', '')} -q`, acme())
        expect(made).toMatchObject({ code: 0 })
        // A warning follows that every pull request may plan.
        policies.push(/[0-9a-f-]{36}/.exec(made.output)![0])
      }
      const place = join(home.path, ci)
      mkdirSync(join(place, 'configuration'), { recursive: true })
      writeFileSync(
        join(place, 'configuration', 'scripts.yaml'),
        `scripts:\n  - { name: Of ${ci}, osTypes: [linux], language: bash, content: 'true' }\n`,
      )
      const comment = home.write('bin/gh', '#!/bin/sh\ncat comment.txt\n')
      chmodSync(comment, 0o755)
      const job = async (name: 'plan' | 'apply', script: string) => {
        const own = join(place, `home-of-${name}`)
        mkdirSync(own, { recursive: true })
        const [plan, apply] = policies
        const token = await issuers[ci].token({ ...claims[ci][name], aud: service.url }, systemClock())
        writeFileSync(join(own, 'token'), token)
        const env = {
          SVC_CONFIG_DIR: own,
          SVC_CREDENTIAL_STORE: 'file',
          ORG_ID: orgId,
          SVC_OIDC_TOKEN: token,
          PLAN_POLICY_ID: plan!,
          APPLY_POLICY_ID: apply!,
          POLICY_ID: name === 'plan' ? plan! : apply!,
          PULL_REQUEST: '1',
          GITHUB_SHA: 'a1',
          CI_COMMIT_SHA: 'a1',
        }
        // The token of the job is in its environment at GitLab, and asked for at GitHub.
        const signIn = script.replace('--oidc github', '--oidc file --oidc-file "$SVC_CONFIG_DIR/token"')
        return run(`set -e\n${signIn}`, env, place)
      }
      const planned = await job('plan', commandsOf[ci]('plan').join('\n'))
      expect(planned).toMatchObject({ code: 0, output: expect.stringContaining(`Of ${ci}`) })
      // The job of a pull request applies nothing, with either policy.
      const applies = commandsOf[ci]('apply').join('\n')
      const tried = await job('plan', applies)
      expect(tried.code).not.toBe(0)
      const policyOfPlan = applies.replace('$APPLY_POLICY_ID', '$PLAN_POLICY_ID')
      expect((await job('plan', policyOfPlan)).code).toBe(5)
      const done = await job('apply', applies)
      expect(done).toMatchObject({ code: 0, output: expect.stringContaining('1 to create') })
    },
  )
})
