import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { failureOf, Home, noTerminal } from './run.ts'

let home: Home

beforeEach(() => {
  home = new Home()
})

afterEach(() => {
  home.remove()
})

const add = (name: string, ...flags: string[]) => home.run(['context', 'add', name, ...flags])
const explain = async (key: string, args: string[] = [], env = {}) =>
  JSON.parse((await home.run(['config', 'explain', key, '--json', ...args], { env })).stdout) as {
    value: unknown
    from: string
    source: string
  }

describe('contexts', () => {
  it('can be added, listed, used and removed', async () => {
    await add('prod', '--url', 'https://svc.example.com/', '--org', 'acme')
    await add('lab', '--url', 'http://127.0.0.1:3000')
    const list = async () => JSON.parse((await home.run(['context', '--json'])).stdout).data
    expect(await list()).toMatchObject([
      { name: 'prod', url: 'https://svc.example.com', org: 'acme', current: true },
      { name: 'lab', url: 'http://127.0.0.1:3000', org: null, current: false },
    ])
    await home.run(['context', 'use', 'lab'])
    expect((await list()).map(({ current }: { current: boolean }) => current)).toEqual([false, true])
    await home.run(['context', 'rm', 'prod'])
    expect((await list()).map(({ name }: { name: string }) => name)).toEqual(['lab'])
    expect((await home.run(['context', 'ls', '-q'])).stdout).toBe('lab\n')
  })

  it('that get another URL lose the identity of the old one', async () => {
    home.signIn('https://old.example.com', {}, { identity: { email: 'a@b.c', scope: 'system' } })
    await add('test', '--url', 'https://new.example.com')
    expect(home.json<{ contexts: { test: object } }>('config/config.json').contexts.test).toEqual({
      url: 'https://new.example.com',
    })
  })

  it('are removed together with their session', async () => {
    home.signIn('https://svc.example.com')
    await home.run(['context', 'rm', 'test'])
    expect(() => home.read('config/sessions/test.json')).toThrow('ENOENT')
  })

  it.skipIf(noTerminal)('are listed with whole addresses', async () => {
    const url = 'https://rmm.of-a-long-name.example.com'
    home.signIn(url, {}, { identity: { email: 'somebody@example.com', scope: 'system' } })
    expect((await home.terminal(['context', 'list'], { columns: 80 })).stdout).toContain(url)
  })

  it.each(['../evil', 'a b', '', '-x'])('cannot be named %j', async (name) => {
    expect((await home.run(['context', 'add', '--url', 'https://x.test', '--', name])).code).toBe(2)
  })

  it('survive ten concurrent processes that each add one', async () => {
    const names = Array.from({ length: 10 }, (_, i) => `c${i}`)
    await Promise.all(names.map((name) => add(name, '--url', 'https://svc.example.com')))
    const { contexts } = home.json<{ contexts: object }>('config/config.json')
    expect(Object.keys(contexts).sort()).toEqual(names)
  })

  it('in an invalid file are reported as an error', async () => {
    await add('prod', '--url', 'https://svc.example.com')
    home.write('config/config.json', '{ nonsense')
    const result = await home.run(['context', '--json'])
    expect(result).toMatchObject({ code: 2, stdout: '' })
    expect(failureOf(result).message).toContain('config.json')
  })
})

describe('a setting', () => {
  it('comes from the flag, else the environment, else the context, else the default', async () => {
    const url = (args: string[] = [], env = {}) => explain('url', args, env)
    expect(await url()).toMatchObject({ value: 'http://127.0.0.1:3000', from: 'default' })
    await add('prod', '--url', 'https://prod.example.com', '--org', 'acme')
    expect(await url()).toMatchObject({
      value: 'https://prod.example.com',
      from: 'context',
      source: 'context prod',
    })
    const env = { SVC_URL: 'https://env.example.com' }
    expect(await url([], env)).toMatchObject({
      value: 'https://env.example.com',
      from: 'env',
      source: 'SVC_URL',
    })
    const flag = ['--url', 'https://flag.example.com']
    expect(await url(flag, env)).toMatchObject({
      value: 'https://flag.example.com',
      from: 'flag',
      source: '--url',
    })
  })

  it('comes from the context named by --context or SVC_CONTEXT', async () => {
    await add('prod', '--url', 'https://prod.example.com', '--org', 'acme')
    await add('lab', '--url', 'https://lab.example.com', '--org', 'bakery')
    expect(await explain('org')).toMatchObject({ value: 'acme', from: 'context' })
    expect(await explain('org', ['--context', 'lab'])).toMatchObject({ value: 'bakery' })
    expect(await explain('url', [], { SVC_CONTEXT: 'lab' })).toMatchObject({
      value: 'https://lab.example.com',
    })
    expect(await explain('org', ['--context', 'prod'], { SVC_CONTEXT: 'lab', SVC_ORG: 'env' })).toMatchObject(
      {
        value: 'env',
        from: 'env',
      },
    )
  })

  it('comes from a context, but organization and session only at the URL of that context', async () => {
    await add('prod', '--url', 'https://prod.example.com', '--org', 'acme')
    expect(await explain('org', ['--url', 'https://else.example.com'])).toMatchObject({ value: null })
  })

  it('no-input comes from CI or SVC_NO_INPUT', async () => {
    expect(await explain('no-input')).toMatchObject({ value: false })
    expect(await explain('no-input', [], { CI: 'true' })).toMatchObject({ value: true, source: 'CI' })
    expect(await explain('no-input', [], { CI: 'false' })).toMatchObject({ value: false })
  })

  it('for a token is never shown', async () => {
    const { stdout } = await home.run(['config', 'explain'], { env: { SVC_TOKEN: 'very-secret' } })
    expect(stdout).not.toContain('very-secret')
    expect(stdout).toContain('********')
  })

  it('comes from XDG_CONFIG_HOME without SVC_CONFIG_DIR', async () => {
    const env = { SVC_CONFIG_DIR: undefined, XDG_CONFIG_HOME: home.path }
    await home.run(['context', 'add', 'x', '--url', 'https://x.test'], { env })
    expect(home.json('svc/config.json')).toMatchObject({ current: 'x' })
  })
})
