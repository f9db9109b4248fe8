import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '../databases.ts'
import { ServeProcess, serviceEnv, until } from './process.ts'

const has = (program: string) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0
const lacking = ['systemd-notify', 'python3'].filter((program) => !has(program))
if (lacking.length > 0) console.warn(`skipped: messages to systemd need ${lacking.join(', ')}`)

/** What systemd does: each datagram of the socket is a line of the file. */
const listener = `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
print('bound', flush=True)
with open(sys.argv[2], 'a') as out:
  while True:
    out.write(s.recv(4096).decode().replace('\\n', ' ') + '\\n')
    out.flush()
`

async function systemd() {
  const folder = await temporaryFolder()
  const [socket, heard] = [join(folder, 'notify'), join(folder, 'heard')]
  const process = spawn('python3', ['-c', listener, socket, heard], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => void process.kill())
  await once(process.stdout, 'data')
  const lines = () => (existsSync(heard) ? readFileSync(heard, 'utf8').split('\n') : [])
  return { socket, lines, count: (part: string) => lines().filter((line) => line.includes(part)).length }
}

describe.skipIf(lacking.length > 0)(
  `messages to systemd (${lacking.join(', ') || 'of this machine'})`,
  () => {
    it('say that the service listens, that it is not stuck, and that it ends', async () => {
      const { socket, lines, count } = await systemd()
      const env = { ...serviceEnv, NOTIFY_SOCKET: socket, WATCHDOG_USEC: '600000' }
      const service = new ServeProcess({ dataDir: await temporaryFolder() }, { env })
      const url = await service.listening(40_000)
      await until(() => count('READY=1') > 0 && count('WATCHDOG=1') > 2)
      expect(lines()[0]).toContain(`READY=1 STATUS=listening on ${url}`)
      // A process that does not get on sends nothing; one that gets on does again.
      service.kill('SIGSTOP')
      service.kill('SIGCONT')
      const before = count('WATCHDOG=1')
      await until(() => count('WATCHDOG=1') > before)
      expect((await service.stop()).code).toBe(0)
      await until(() => count('STOPPING=1') === 1)
    })

    it('are not sent by another process than the one that systemd watches', async () => {
      const { socket, count } = await systemd()
      const env = { ...serviceEnv, NOTIFY_SOCKET: socket, WATCHDOG_USEC: '100000', WATCHDOG_PID: '1' }
      const service = new ServeProcess({ dataDir: await temporaryFolder() }, { env })
      await service.listening(40_000)
      await until(() => count('READY=1') > 0)
      expect((await service.stop()).code).toBe(0)
      await until(() => count('STOPPING=1') === 1)
      expect(count('WATCHDOG=1')).toBe(0)
    })
  },
)

it('a service whose messages do not reach systemd serves on, and logs that once', async () => {
  const folder = await temporaryFolder()
  writeFileSync(join(folder, 'systemd-notify'), '#!/bin/sh\nexit 1\n')
  chmodSync(join(folder, 'systemd-notify'), 0o755)
  const PATH = `${folder}:${process.env.PATH}`
  const env = { ...serviceEnv, PATH, NOTIFY_SOCKET: '/nowhere', WATCHDOG_USEC: '100000' }
  const service = new ServeProcess({ dataDir: await temporaryFolder() }, { env })
  const url = await service.listening(40_000)
  const failures = () => service.stderr.match(/systemd-notify failed/g)?.length ?? 0
  await until(() => failures() > 0)
  expect((await fetch(`${url}/health/live`)).status).toBe(200)
  expect((await service.stop()).code).toBe(0)
  expect(failures()).toBe(1)
})
