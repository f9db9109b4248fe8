import { afterAll, describe, expect, it } from 'vitest'
import { CommandHost } from './command-host.ts'
import { binary, Home, start } from './run.ts'

const home = new Home()
const host = new CommandHost({ cwd: home.path, env: home.env })
afterAll(() => {
  host.close()
  home.remove()
})

const run = (args: string[], env = {}, longest = 20_000) => host.run(args, { ...home.env, ...env }, longest)

describe('a process that runs one command after another', () => {
  it('gives what each writes on each stream, and its exit code', async () => {
    const refused = await run(['orgs', 'list', '--json'])
    expect(refused).toMatchObject({
      code: 4,
      stdout: '',
      stderr: expect.stringContaining('"unauthenticated"'),
    })
    const { stdout, ...ended } = await run(['commands', '--json'])
    expect([ended, JSON.parse(stdout)]).toEqual([{ code: 0, stderr: '' }, expect.anything()])
    const alone = await start(process.execPath, [binary, 'commands', '--json'], home.env, home.path)
    expect(stdout).toBe(alone.stdout)
  })

  it('leaves no variable and no exit code of a command to the next', async () => {
    const named = { SVC_URL: 'http://127.0.0.1:9', SVC_TOKEN: 'token' }
    expect((await run(['orgs', 'list', '--json'], named)).stderr).toContain('127.0.0.1:9')
    const after = await run(['context', 'ls'])
    expect([after.code, `${after.stdout}${after.stderr}`]).toEqual([0, expect.not.stringContaining(':9')])
  })

  it('runs one at a time, and only what is the same there', () => {
    expect(host.canRun(['orgs', 'list'], home.env)).toBe(true)
    const first = run(['commands'])
    expect(host.canRun(['orgs', 'list'], home.env)).toBe(false)
    return first.then(() => {
      expect(host.canRun(['orgs', 'list'], home.env)).toBe(true)
      expect(host.canRun(['db', 'status'], home.env)).toBe(false)
      expect(host.canRun(['orgs', 'list'], { ...home.env, TZ: 'UTC' })).toBe(false)
      expect(host.canRun(['orgs', 'list'], { ...home.env, SVC_URL: 'http://127.0.0.1:9' })).toBe(true)
    })
  })

  it('ends a command that takes too long, and runs the next one in another process', async () => {
    const late = await run(['audit', 'tail'], { SVC_URL: 'http://127.0.0.1:9', SVC_TOKEN: 'token' }, 1)
    expect(late.code).toBeNull()
    expect((await run(['commands'])).code).toBe(0)
  })
})
