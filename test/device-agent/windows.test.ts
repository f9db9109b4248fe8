import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { CliError } from '../../src/cli/exit-codes.ts'
import { taskText } from '../../src/device-agent/install/task.ts'
import {
  checkStateDir,
  type WindowsMachine,
  windowsInstaller,
} from '../../src/device-agent/install/windows.ts'

const key = 'f00d'.repeat(16)
const url = 'https://svc.example.com'

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'svc-windows-'))
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

/** A machine whose programs answer as they do on Windows. `answers`: text, or a failure, by the name of a program or its first argument. */
function windows(answers: Record<string, string | Error> = {}) {
  const calls: { line: string; env: Record<string, string> | undefined }[] = []
  const machine: WindowsMachine = {
    env: {
      ProgramData: join(root, 'data'),
      ProgramFiles: join(root, 'programs'),
      SystemRoot: join(root, 'windows'),
    },
    self: join(root, 'download.exe'),
    now: () => new Date('2026-11-27T10:00:00Z'),
    run(program, args, options) {
      calls.push({ line: [basename(program), ...args].join(' '), env: options?.env })
      if (!program.startsWith(root)) throw new Error(`${program} is found by its name`)
      const defaults = { powershell: 'S-1-5-32-544\r\n', query: new Error('no such task') }
      const all: Record<string, string | Error> = { ...defaults, ...answers }
      const name = basename(program, '.exe')
      const answer = all[args[0]!.slice(1).toLowerCase()] ?? all[name] ?? ''
      if (answer instanceof Error) throw answer
      return answer
    },
  }
  const installer = windowsInstaller(machine)
  const place = {
    stateDir: join(root, 'data/svc-agent'),
    user: 'SYSTEM',
    unitFile: join(root, 'data/svc-agent/task.xml'),
  }
  const binary = join(root, 'programs/svc-agent/svc-agent.exe')
  writeFileSync(machine.self, 'the agent')
  const steps = (given: { enrollmentKey?: string; binary?: string } = {}) =>
    installer.installSteps({ ...place, url, binary: machine.self, enrollmentKey: undefined, ...given })
  return {
    machine,
    installer,
    place,
    binary,
    calls,
    steps,
    lines: () => calls.map(({ line }) => line),
    log: () => readFileSync(join(place.stateDir, 'install.log'), 'utf8'),
  }
}

describe('svc agent install on Windows', () => {
  test('protects the state, enrolls, and only then registers and starts the task', () => {
    const { steps, lines, calls, binary, place, log } = windows()
    for (const step of steps({ enrollmentKey: key })) step.do()
    const { stateDir } = place
    expect(lines().filter((line) => !line.startsWith('powershell'))).toEqual([
      `schtasks.exe /Query /TN svc-agent`,
      `icacls.exe ${stateDir} /setowner *S-1-5-32-544`,
      `icacls.exe ${stateDir} /inheritance:r /grant:r *S-1-5-18:(OI)(CI)F *S-1-5-32-544:(OI)(CI)F`,
      `next-svc-agent.exe --version`,
      `svc-agent.exe run --once --no-input --state-dir ${stateDir} --url ${url}`,
      `schtasks.exe /Create /F /TN svc-agent /XML ${stateDir}/task.xml`,
      `schtasks.exe /Run /TN svc-agent`,
    ])
    expect(readFileSync(binary, 'utf8')).toBe('the agent')
    // The key is in the environment of one process: no arguments, no file.
    expect(calls.filter(({ env }) => env?.SVC_ENROLLMENT_KEY === key)).toHaveLength(1)
    const stored = readdirSync(root, { recursive: true, withFileTypes: true }).filter((one) => one.isFile())
    for (const { parentPath, name } of stored)
      expect(readFileSync(join(parentPath, name), 'utf8')).not.toContain(key)
    expect(lines().join('\n')).not.toContain(key)
    expect(log().split('\r\n')).toContain('2026-11-27T10:00:00.000Z Done: enroll this machine')
    expect(readFileSync(join(stateDir, 'task.xml')).subarray(0, 4)).toEqual(
      Buffer.from([0xff, 0xfe, 0x3c, 0]),
    )
  })

  test('ends the task first where it is registered, and replaces its program', () => {
    const { steps, lines, binary } = windows({ query: 'svc-agent', end: new Error('it does not run') })
    mkdirSync(join(root, 'programs/svc-agent'), { recursive: true })
    writeFileSync(binary, 'the agent of before')
    for (const step of steps()) step.do()
    const all = lines()
    expect(all.indexOf('schtasks.exe /End /TN svc-agent')).toBeLessThan(
      all.indexOf('next-svc-agent.exe --version'),
    )
    expect(readFileSync(binary, 'utf8')).toBe('the agent')
  })

  test('copies nothing where the program is in its place already, as that of an MSI', () => {
    const { steps, binary } = windows()
    expect(steps({ binary: binary.toUpperCase() }).map(({ what }) => what)).not.toContainEqual(
      expect.stringContaining('copy'),
    )
  })

  test('writes its log anew', () => {
    const { steps, log } = windows()
    for (let n = 0; n < 2; n += 1) for (const step of steps()) step.do()
    expect(log().match(/Done: register/g)).toHaveLength(1)
  })

  test.each([
    ['of another user', '', 'belongs to S-1-5-21-7'],
    ['with a file of another user', '-Recurse', 'has files of S-1-5-21-7'],
  ])('uses no directory %s: an identity in it would choose the service', (_, where, message) => {
    const { machine, steps, lines, place } = windows()
    const { run } = machine
    machine.run = (program, args, options) => {
      const said = run(program, args, options)
      const isAsked =
        basename(program) === 'powershell.exe' && args.at(-1)!.includes('-Recurse') === (where !== '')
      return isAsked ? `S-1-5-18\r\nS-1-5-21-7\r\n${said}` : said
    }
    expect(() => steps()[0]!.do()).toThrow(message)
    expect(lines().some((line) => line.startsWith('icacls.exe'))).toBe(where !== '')
    expect(existsSync(join(place.stateDir, 'install.log'))).toBe(false)
  })

  test('registers nothing when the service refuses the key, and says why in its log and in the event log', () => {
    const refused = new CliError('svc-agent.exe run failed: the enrollment key has expired')
    const { steps, installer, lines, log } = windows({ 'svc-agent': refused })
    const work = (): void => {
      for (const step of steps({ enrollmentKey: key })) step.do()
    }
    expect(work).toThrow(refused)
    installer.recordFailure(refused.message)
    expect(lines().join()).not.toContain('/Create')
    expect(log()).toContain('Failed: svc-agent.exe run failed: the enrollment key has expired')
    expect(lines().at(-1)).toBe(
      `eventcreate.exe /L APPLICATION /T ERROR /SO svc-agent /ID 1 /D svc-agent was not installed: ${refused.message}`,
    )
  })

  test('says a failure also where there is neither log nor event log', () => {
    const { installer, lines, place } = windows({ eventcreate: new Error('access denied') })
    installer.recordFailure('This requires an administrator')
    expect(lines()).toHaveLength(1)
    expect(existsSync(place.stateDir)).toBe(false)
  })

  test.each([
    ['a person without elevation', 'S-1-16-8192', false],
    ['an administrator', 'S-1-16-12288', true],
    ['the system, as in an MSI', 'S-1-16-16384', true],
  ])('is or is not for %s', (_, level, allowed) => {
    const { installer, place } = windows({ groups: `"Mandatory Label","Label","${level}","Mandatory group"` })
    const check = () => installer.checkPrivileges({ 'dry-run': false }, place)
    if (allowed) expect(check).not.toThrow()
    else expect(check).toThrow('This requires an administrator')
    expect(() => installer.checkPrivileges({ 'dry-run': true }, place)).not.toThrow()
  })

  test.each([
    ['C:\\ProgramData\\svc-agent', true],
    ['D:\\a folder\\of others', true],
    ['C:\\', false],
    ['C:\\Windows', false],
    ['\\\\server\\share\\folder', false],
    ['C:\\ProgramData\\"x" & y', false],
    ['C:\\ProgramData\\%TEMP%', false],
    ['C:\\ProgramData\\svc-agent\\', false],
  ])('stores its state in %s: %s', (stateDir, allowed) => {
    if (allowed) expect(() => checkStateDir(stateDir)).not.toThrow()
    else expect(() => checkStateDir(stateDir)).toThrow('--state-dir')
  })

  test('refuses flags of Linux', () => {
    const { installer } = windows()
    expect(() => installer.placeOf({ 'dry-run': true, user: 'x' })).toThrow('--user is for Linux')
    expect(() => installer.placeOf({ 'dry-run': true, 'unit-dir': 'x' })).toThrow('--unit-dir is for Linux')
  })
})

describe('svc agent uninstall on Windows', () => {
  test('removes task and program, and the state only with --purge', () => {
    const { installer, place, binary, steps, lines } = windows({ query: 'svc-agent' })
    for (const step of steps()) step.do()
    for (const step of installer.uninstallSteps(place, false)) step.do()
    expect(lines().slice(-2)).toEqual([
      'schtasks.exe /End /TN svc-agent',
      'schtasks.exe /Delete /F /TN svc-agent',
    ])
    expect([existsSync(join(root, 'programs/svc-agent')), existsSync(place.stateDir)]).toEqual([false, true])
    for (const step of installer.uninstallSteps(place, true)) step.do()
    expect([existsSync(binary), existsSync(place.stateDir)]).toEqual([false, false])
  })

  test('leaves the file of the program that runs', () => {
    const { machine, installer, place, binary, steps } = windows()
    for (const step of steps()) step.do()
    writeFileSync(join(root, 'programs/svc-agent/old-svc-agent.exe'), 'the agent of before')
    machine.self = binary.toUpperCase()
    const remove = installer.uninstallSteps(place, false)
    expect(remove.at(-1)!.what).toContain('but SVC-AGENT.EXE, which runs')
    for (const step of remove) step.do()
    expect(readdirSync(join(root, 'programs/svc-agent'))).toEqual(['svc-agent.exe'])
    expect(installer.uninstallSteps(place, false)).toEqual([])
  })

  test('removes no directory that is not the state of an agent', () => {
    const { installer, place } = windows()
    mkdirSync(place.stateDir, { recursive: true })
    expect(() => installer.uninstallSteps(place, true)).toThrow('is not the state directory of an agent')
  })
})

describe('the scheduled task', () => {
  const task = (address?: string) =>
    taskText({
      binary: 'C:\\Program Files\\svc-agent\\svc-agent.exe',
      stateDir: 'C:\\ProgramData\\R&D\\svc-agent',
      url: address,
      displaced: 'C:\\Program Files\\svc-agent\\old-svc-agent.exe',
      shell: 'C:\\Windows\\System32\\cmd.exe',
    })
  const contents = (name: string, text = task()): string[] =>
    [...text.matchAll(new RegExp(`<${name}>(.*?)</${name}>`, 'gs'))].map(([, content]) => content!.trim())

  test('runs as the system from the start of the machine, for any time, on battery, once', () => {
    for (const [name, content] of [
      ['UserId', 'S-1-5-18'],
      ['RunLevel', 'HighestAvailable'],
      ['MultipleInstancesPolicy', 'IgnoreNew'],
      ['DisallowStartIfOnBatteries', 'false'],
      ['StopIfGoingOnBatteries', 'false'],
      ['ExecutionTimeLimit', 'PT0S'],
      ['Hidden', 'true'],
    ] as const)
      expect([name, contents(name)]).toEqual([name, [content]])
  })

  test('begins again within a minute of its end, also before the machine restarts', () => {
    for (const trigger of ['BootTrigger', 'TimeTrigger'])
      expect(contents('Interval', contents(trigger)[0])).toEqual(['PT1M'])
    expect(contents('StartBoundary')[0]! < '2021').toBe(true)
  })

  test('has each argument as it is given', () => {
    const agent = contents('Exec', task('https://svc.example.com/a%20b?c&d'))[1]!
    expect(contents('Command', agent)).toEqual(['C:\\Program Files\\svc-agent\\svc-agent.exe'])
    const words = contents('Arguments', agent)[0]!.replaceAll('&quot;', '"').replaceAll('&amp;', '&')
    expect(words).toBe(
      'run --state-dir "C:\\ProgramData\\R&D\\svc-agent" --no-input --url "https://svc.example.com/a%20b?c&d"',
    )
  })

  test('puts the program back where an update was cut short', () => {
    const repair = contents('Arguments')[0]!.replaceAll('&quot;', '"')
    expect(repair).toMatch(
      /^\/d \/c if not exist "[^"]*svc-agent\.exe" move "[^"]*old-svc-agent\.exe" "[^"]*svc-agent\.exe"$/,
    )
  })

  test('is of text that no value can leave', () => {
    expect(task('https://svc.example.com/?a<b>"c&d')).not.toMatch(/&(?!(amp|lt|gt|quot);)|a<b/)
  })
})
