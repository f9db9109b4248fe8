import { execFile, spawn, spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Finding } from '../../../src/core/finding.ts'
import { hasOpenssl, testCertificate } from '../../cli/network.ts'
import { temporaryFolder } from '../../databases.ts'
import { replaced } from '../../operations/guide.ts'
import { missing as missingProxy, startProxy } from '../../operations/proxy-programs.ts'
import { ServeProcess, serviceEnv } from '../process.ts'
import { summaryOf } from './findings.ts'

/*
 * Whether the doctor sees what a real nginx makes of the addresses of clients. All of it runs in a network of its own, in which
 * this machine also has an address that is not one of the loopback network.
 */

const address = '198.51.100.9'
const ports = { https: 8443, http: 8080, services: [3000, 3001] as const }
const binary = fileURLToPath(new URL('../../../bin/svc.js', import.meta.url))
const setUp = `ip link set lo up && ip addr add ${address}/32 dev lo`

const why = (() => {
  if (!hasOpenssl) return 'openssl is not installed'
  if (spawnSync('unshare', ['-n', 'sh', '-c', setUp]).status !== 0)
    return 'no network of its own can be made here'
  return missingProxy('nginx')
})()

/** Runs what follows in a network that nothing leaves. */
async function ownNetwork(): Promise<readonly string[]> {
  const holder = spawn('unshare', ['-n', 'sh', '-c', `${setUp} && echo ready && exec sleep 600`], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void holder.kill('SIGKILL'))
  await new Promise((resolve) => holder.stdout.once('data', resolve))
  return ['nsenter', '--net', '--target', String(holder.pid)]
}

describe.skipIf(why !== undefined)(`behind nginx (${why ?? 'in a network of its own'})`, () => {
  const certificate = testCertificate({ names: `IP:${address}` })
  const trusting = { TRUST_PROXY_HEADERS: 'true', TRUSTED_PROXY_CIDRS: '127.0.0.1/32' }

  /** What the doctor says of addresses, with these settings and changes of the configuration of the guide. */
  async function found(settings: Record<string, string>, changes: Record<string, string> = {}) {
    const within = await ownNetwork()
    const dataDir = await temporaryFolder()
    const own = {
      ...serviceEnv,
      ...settings,
      PORT: String(ports.services[0]),
      PUBLIC_URL: `https://${address}:${ports.https}`,
    }
    const service = new ServeProcess({ dataDir }, { env: own, within })
    await service.listening(60_000)
    const files = { cert: certificate.file, key: certificate.file.replace('cert.pem', 'key.pem') }
    const proxy = await startProxy('nginx', ports, files, {
      within,
      change(folder) {
        const file = join(folder, 'svc.conf')
        const listens = { [`listen 127.0.0.1:${ports.https}`]: `listen ${address}:${ports.https}` }
        writeFileSync(file, replaced(readFileSync(file, 'utf8'), { ...listens, ...changes }))
      },
      accepts: (port) => {
        const [command = '', ...words] = [...within, 'bash', '-c', `exec 3<>/dev/tcp/${address}/${port}`]
        return spawnSync(command, words).status === 0
      },
    })
    onTestFinished(proxy.stop)
    const [command = '', ...words] = [...within, process.execPath, binary, 'doctor', '--json']
    const env = { PATH: process.env.PATH, HOME: dataDir, SVC_DATA_DIR: dataDir, ...own }
    const asked = promisify(execFile)(command, words, {
      env: { ...env, NODE_EXTRA_CA_CERTS: certificate.file },
    })
    // It exits with 1 or 2 where it finds something.
    const { stdout } = await asked.catch((error: { stdout: string }) => error)
    const { findings } = JSON.parse(stdout) as { findings: Finding[] }
    return summaryOf(findings.filter(({ check }) => /^(public address|client addresses)$/.test(check)))
  }

  const reached = ['public address', 'ok', expect.stringContaining(' answers, certificate until ')]

  it('that the service trusts, each client is seen as who it is', async () => {
    expect(await found(trusting)).toEqual([
      reached,
      ['client addresses', 'ok', `The service sees this machine as ${address}`],
    ])
  })

  it('that the service does not trust, all clients look like the proxy', async () => {
    expect(await found({})).toEqual([
      reached,
      [
        'client addresses',
        'warning',
        `The service sees the requests of this machine (${address}) as those of 127.0.0.1.`,
      ],
    ])
  })

  it('that hands on what clients claim, each client can be anybody', async () => {
    const claims = { 'X-Forwarded-For $remote_addr': 'X-Forwarded-For $http_x_forwarded_for' }
    expect(await found(trusting, claims)).toEqual([
      reached,
      [
        'client addresses',
        'error',
        'The service believes the address that a client writes into X-Forwarded-For.',
      ],
    ])
  })
})
