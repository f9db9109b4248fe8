import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { generateX25519Identity, identityToRecipient } from 'age-encryption'
import { describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { readBackups } from '../../daemon/backup/settings.ts'
import { execution, uid } from '../../packaging/image.ts'
import { Home } from '../cli/run.ts'
import { kinds } from '../daemon/backup/filled.ts'
import { ServeProcess, serviceEnv } from '../daemon/process.ts'
import { openEmpty, temporaryFolder } from '../databases.ts'
import { freePort } from '../postgres.ts'
import { blocksOf, replaced, textOf } from './guide.ts'
import { faultOf } from './named-commands.ts'

/* What operators copy for containers, docs/operations/containers: each name in it is one of the product, and a service starts with it. */

const root = fileURLToPath(new URL('../..', import.meta.url))
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }
const manual = readFileSync(join(root, 'man/svc-serve.8.md'), 'utf8')

type Image = {
  User: string
  Env: string[]
  Entrypoint: string[]
  Volumes: object
  ExposedPorts: object
  Healthcheck: { Test: string[]; Interval: number; Timeout: number; StartPeriod: number; Retries: number }
}
const image = execution(version, '', undefined) as Image
const imageEnv = Object.fromEntries(image.Env.map((one) => one.split('=') as [string, string]))
const [volume] = Object.keys(image.Volumes)

type Health = { test: string[]; interval: string; timeout: string; start_period: string; retries: number }
type Service = {
  image: string
  environment: Record<string, string>
  secrets: string[]
  volumes: string[]
  ports?: string[]
  networks: unknown
  read_only: boolean
  cap_drop: string[]
  stop_grace_period: string
  healthcheck: Health
  depends_on?: Record<string, { condition: string }>
}
type Compose = {
  services: Record<string, Service>
  volumes: Record<string, unknown>
  secrets: Record<string, { file: string }>
  networks: { svc: { ipam: { config: { subnet: string; gateway: string }[] } } }
}
const compose = (name: string): Compose => parse(textOf(`containers/${name}`), { merge: true })
const composeFiles = ['compose.yml', 'compose.postgres.yml'] as const
const ownServices = (file: string) =>
  Object.entries(compose(file).services).filter(([, { image }]) => image.startsWith('svc:'))
const services = composeFiles.flatMap((file) =>
  ownServices(file).map(([name, service]) => ({ file, name, service })),
)

// biome-ignore lint/suspicious/noExplicitAny: the shapes of Kubernetes are large
type Manifest = Record<string, any>
const manifests: Manifest[] = parseAllDocuments(textOf('containers/kubernetes.yml')).map((one) => one.toJS())
const ofKind = (kind: string) => manifests.filter((one) => one.kind === kind)
const [set] = ofKind('StatefulSet')
const pod = set!.spec.template.spec
const [container] = pod.containers
const podEnv: Record<string, string> = Object.fromEntries(
  container.env.map(({ name, value }: { name: string; value: string }) => [name, value]),
)

/** A setting in the tables of svc-serve(8). */
const isSetting = (name: string) =>
  manual.split('\n').some((line) => line.startsWith('|') && new RegExp(`\\b${name}\\b`).test(line))
const secondsOf = (text: string) => Number(/^(\d+)s$/.exec(text)?.[1])
/** As svc-serve(8) says under Stopping. */
const stopSeconds = 10

/** The files that the page makes in the folder `secrets`. */
const made = blocksOf('containers')
  .filter(({ notRun }) => notRun === undefined)
  .flatMap(({ script }) => [
    ...(/for name in ([A-Z_ ]+);/.exec(script)?.[1] ?? '').split(' '),
    ...[...script.matchAll(/secrets\/([A-Z_]+)/g)].map(([, name]) => name!),
  ])
  .filter((name) => name !== '')

describe.each(services)('$name in $file', ({ file, service }) => {
  it('has settings and secrets that the service has, and files that the page makes', () => {
    const names = [...Object.keys(service.environment), ...service.secrets]
    expect(names.filter((name) => !isSetting(name))).toEqual([])
    for (const name of service.secrets) {
      expect(compose(file).secrets[name]).toEqual({ file: `./secrets/${name}` })
      expect(made).toContain(name)
    }
    expect(service.environment.CREDENTIALS_DIRECTORY).toBe('/run/secrets')
    expect(service.secrets.includes('DATABASE_URL')).toBe(file === 'compose.postgres.yml')
  })

  it('runs the image of this version, within what the image can do', () => {
    expect(service.image).toBe(`svc:${version}`)
    expect([service.read_only, service.cap_drop]).toEqual([true, ['ALL']])
    const [name, target] = service.volumes[0]!.split(':')
    expect(service.volumes).toHaveLength(1)
    expect([target, imageEnv.SVC_DATA_DIR]).toEqual([volume, volume])
    expect(Object.keys(compose(file).volumes)).toContain(name)
    expect(secondsOf(service.stop_grace_period)).toBeGreaterThan(stopSeconds)
    const { Test, Interval, Timeout, StartPeriod, Retries } = image.Healthcheck
    expect(service.healthcheck.test).toEqual(Test)
    expect(faultOf(Test.slice(1).join(' '))).toBe(undefined)
    const times = [
      service.healthcheck.interval,
      service.healthcheck.timeout,
      service.healthcheck.start_period,
    ]
    expect(times.map(secondsOf)).toEqual([Interval, Timeout, StartPeriod].map((one) => one / 1e9))
    expect(service.healthcheck.retries).toBe(Retries)
    for (const one of service.ports ?? []) expect(one).toBe(`127.0.0.1:3000:${imageEnv.PORT}`)
  })

  it('believes the proxy that is in front of it, and no other', () => {
    const [network] = compose(file).networks.svc.ipam.config
    const { caddy } = compose(file).services
    const networks = caddy?.networks as { svc: { ipv4_address: string } } | undefined
    const proxy = networks?.svc.ipv4_address ?? network?.gateway
    expect(service.environment.TRUSTED_PROXY_CIDRS).toBe(`${proxy}/32`)
  })
})

describe('compose.postgres.yml', () => {
  const { services: all, secrets, volumes } = compose('compose.postgres.yml')

  it('gives each process a data directory of its own, and starts it when Postgres answers', () => {
    const own = ownServices('compose.postgres.yml').map(([, service]) => service)
    expect(new Set(own.map((one) => one.volumes[0])).size).toBe(2)
    for (const { depends_on } of own)
      expect(depends_on).toEqual({ postgres: { condition: 'service_healthy' } })
    expect(all.postgres?.healthcheck.test).toBeDefined()
    const used = Object.values(all).flatMap((one) => one.secrets ?? [])
    expect(new Set(used)).toEqual(new Set(Object.keys(secrets)))
    const mounted = Object.values(all).flatMap((one) => one.volumes.map((volume) => volume.split(':')[0]!))
    expect(mounted.filter((name) => !name.startsWith('.')).sort()).toEqual(Object.keys(volumes).sort())
  })

  it('has the Caddyfile that is tested with Caddy, with the names of its processes', () => {
    const lines = (text: string) => text.split('\n').slice(1).join('\n')
    const names = ownServices('compose.postgres.yml').map(([name]) => `${name}:${imageEnv.PORT}`)
    const expected = replaced(textOf('proxy/Caddyfile'), { '127.0.0.1:3000 127.0.0.1:3001': names.join(' ') })
    expect(lines(textOf('containers/Caddyfile'))).toBe(lines(expected))
  })
})

describe.each([
  ['compose.backup.yml', 'compose.yml'],
  ['compose.postgres.backup.yml', 'compose.postgres.yml'],
] as const)('%s', (file, base) => {
  const added = compose(file).services
  const [first] = Object.values(added)

  it('gives each process of the other file one schedule, and a folder that all of them see', () => {
    expect(Object.keys(added)).toEqual(ownServices(base).map(([name]) => name))
    for (const one of Object.values(added)) expect(one).toEqual(first)
    expect(Object.keys(first!.environment).filter((name) => !isSetting(name))).toEqual([])
    // The root file system is read-only.
    expect(first!.volumes).toEqual([`./backups:${first!.environment.BACKUP_TARGET}`])
  })

  it('has a schedule and recipients that the service takes', async () => {
    const recipient = await identityToRecipient(await generateX25519Identity())
    const { BACKUP_TARGET: _, ...others } = first!.environment
    const BACKUP_RECIPIENTS = others.BACKUP_RECIPIENTS!.replace(/^\$\{RECIPIENT:\?.*\}$/, recipient)
    const read = readBackups({ ...others, BACKUP_RECIPIENTS, BACKUP_TARGET: await temporaryFolder() })
    expect(read).toMatchObject({ schedule: '30 2 * * *', keep: 14, recipients: [recipient] })
  })

  it('is named by the page, with commands that the program has', () => {
    expect(readFileSync(join(root, 'docs/operations/containers.md'), 'utf8')).toContain(
      `](containers/${file})`,
    )
    const scripts = blocksOf('containers').flatMap(({ notRun, script }) =>
      notRun === 'docker' ? [script] : [],
    )
    const lines = scripts.join('').replaceAll('\\\n', '').split('\n')
    const commands = lines.flatMap((line) => / (db (?:backup|drill|restore) .*)$/.exec(line)?.[1] ?? [])
    expect(commands.map((line) => line.split(' ')[1])).toEqual(['backup', 'drill', 'restore'])
    for (const line of commands) expect(faultOf(`svc ${line}`)).toBe(undefined)
  })
})

describe('kubernetes.yml', () => {
  it('has settings that the service has', () => {
    expect(Object.keys(podEnv).filter((name) => !isSetting(name))).toEqual([])
    const [secret] = pod.volumes
    const mounts = Object.fromEntries(
      container.volumeMounts.map((one: { name: string; mountPath: string }) => [one.name, one.mountPath]),
    )
    expect(mounts).toEqual({ data: volume, [secret.name]: podEnv.CREDENTIALS_DIRECTORY })
    expect(set!.spec.volumeClaimTemplates[0].metadata.name).toBe('data')
    const create = blocksOf('containers').find(({ notRun }) => notRun === 'kubernetes')!.script
    expect(create).toContain(`kubectl create secret generic ${secret.secret.secretName} --from-file=secrets`)
    expect(faultOf(container.args.join(' ').replace(/^/, 'svc '))).toBe(undefined)
    expect(container.image).toMatch(new RegExp(`/svc:${version.replaceAll('.', '\\.')}$`))
  })

  it('is accepted where the Pod Security Standard "restricted" is enforced', () => {
    expect(pod.securityContext).toMatchObject({
      runAsNonRoot: true,
      runAsUser: uid,
      runAsGroup: uid,
      fsGroup: uid,
      seccompProfile: { type: 'RuntimeDefault' },
    })
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    })
    for (const field of ['hostNetwork', 'hostPID', 'hostIPC', 'hostUsers']) expect(pod[field]).toBe(undefined)
    expect(manifests.map(({ metadata }) => metadata.namespace)).toEqual(manifests.map(() => undefined))
  })

  it('leads services, probes and the disruption budget to its pods', () => {
    const { labels } = set!.spec.template.metadata
    const selectors = [
      set!.spec.selector.matchLabels,
      ...ofKind('Service').map(({ spec }) => spec.selector),
      ...ofKind('PodDisruptionBudget').map(({ spec }) => spec.selector.matchLabels),
    ]
    for (const selector of selectors) expect(selector).toEqual(labels)
    expect(ofKind('Service').map(({ metadata }) => metadata.name)).toContain(set!.spec.serviceName)
    const [port] = container.ports
    expect(String(port.containerPort)).toBe(imageEnv.PORT)
    const probes = ['startupProbe', 'livenessProbe', 'readinessProbe'].map((name) => container[name].httpGet)
    const ports = ofKind('Service').flatMap(({ spec }) => spec.ports)
    expect(probes.map((one) => one.port)).toEqual(probes.map(() => port.name))
    expect(ports.map((one) => one.targetPort)).toEqual(ports.map(() => port.name))
    expect(ofKind('PodDisruptionBudget')[0]!.spec.maxUnavailable).toBeLessThan(set!.spec.replicas)
  })

  it('gives a pod the time that the service takes to stop, after the wait before it', () => {
    const { seconds } = container.lifecycle.preStop.sleep
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(seconds + stopSeconds)
  })
})

describe.each(kinds)('a service with the settings of a container, on %s', (kind) => {
  it('starts, answers the probes and its health check, and ends within the time for it', async () => {
    const settings = kind === 'sqlite' ? services[0]!.service.environment : podEnv
    const database = await openEmpty(kind)
    await database.storage.close()
    const credentials = join(database.dataDir, 'credentials')
    mkdirSync(credentials)
    const names = services[0]!.service.secrets
    for (const name of names)
      writeFileSync(join(credentials, name), `${randomBytes(32).toString('base64')}\n`)
    if (database.databaseUrl) writeFileSync(join(credentials, 'DATABASE_URL'), `${database.databaseUrl}\n`)
    const port = String(await freePort())
    const env = {
      ...Object.fromEntries(Object.keys(serviceEnv).map((name) => [name, ''])),
      ...imageEnv,
      PATH: process.env.PATH!,
      HOME: database.dataDir,
      SVC_DATA_DIR: database.dataDir,
      ...settings,
      CREDENTIALS_DIRECTORY: credentials,
      HOST: '127.0.0.1',
      PORT: port,
    }
    const service = new ServeProcess({ dataDir: database.dataDir }, { env })
    const url = await service.listening(60_000)
    const paths = ['startupProbe', 'livenessProbe', 'readinessProbe'].map(
      (name) => container[name].httpGet.path,
    )
    for (const path of paths) expect((await fetch(`${url}${path}`)).status, path).toBe(200)
    const home = new Home()
    const check = image.Healthcheck.Test.slice(2)
    expect(await home.run(check, { env: { PORT: port } })).toMatchObject({ code: 0, stdout: 'ready\n' })
    const begun = service.stop()
    expect(await begun).toEqual({ code: 0, signal: null })
    const after = await home.run(check, { env: { PORT: port } })
    expect(after).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^unreachable: .*nothing listens there/),
    })
    home.remove()
    await database.close()
  })
})
