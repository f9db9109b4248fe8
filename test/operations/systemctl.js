// Stands in for systemctl(1) where the guide of operators is tried: starts what ExecStart= of svc.service says, with the settings
// and the credentials that the unit and its drop-ins give it, and ends it. Given: UNITS, the folder of the unit, and SANDBOX.
import { spawn } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const { UNITS, SANDBOX, PATH, HOME, NODE_COMPILE_CACHE } = process.env
const pidFile = join(SANDBOX, 'pid')
const [verb] = process.argv.slice(2)

if (verb === 'stop' || verb === 'restart') await stop()
if (verb === 'start' || verb === 'restart') start()
if (!['start', 'stop', 'restart', 'daemon-reload'].includes(verb)) {
  console.error(`systemctl ${verb} is not stood in for`)
  process.exit(1)
}

function start() {
  const credentials = join(SANDBOX, 'run-credentials')
  rmSync(credentials, { recursive: true, force: true })
  mkdirSync(credentials, { mode: 0o700 })
  const files = [join(UNITS, 'svc.service'), ...globSync(join(UNITS, 'svc.service.d/*.conf')).sort()]
  const settings = files.flatMap((file) =>
    readFileSync(file, 'utf8')
      .split('\n')
      .filter((line) => /^[A-Z]\w+=/.test(line))
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )
  const of = (name) => settings.filter(([one]) => one === name).map(([, value]) => value)
  for (const value of of('LoadCredential')) {
    const at = value.indexOf(':')
    const copy = join(credentials, value.slice(0, at))
    copyFileSync(value.slice(at + 1), copy)
    chmodSync(copy, 0o400)
  }
  const lines = [
    ...of('EnvironmentFile').flatMap((file) => readFileSync(file, 'utf8').split('\n')),
    ...of('Environment'),
  ].filter((line) => /^[A-Z]\w*=/.test(line))
  const env = { PATH, HOME, NODE_COMPILE_CACHE, CREDENTIALS_DIRECTORY: credentials }
  for (const line of lines) env[line.slice(0, line.indexOf('='))] = line.slice(line.indexOf('=') + 1)
  const [program, ...args] = of('ExecStart').at(-1).split(' ')
  const log = openSync(join(SANDBOX, 'log'), 'a')
  const child = spawn(program, args, { env, cwd: SANDBOX, detached: true, stdio: ['ignore', log, log] })
  writeFileSync(pidFile, String(child.pid))
  child.unref()
}

async function stop() {
  if (!existsSync(pidFile)) return
  const pid = Number(readFileSync(pidFile, 'utf8'))
  const runs = () =>
    existsSync(`/proc/${pid}`) && !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  if (runs()) process.kill(pid, 'SIGTERM')
  for (let n = 0; runs() && n < 400; n++) await sleep(50)
  rmSync(pidFile)
}
