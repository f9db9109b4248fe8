import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { liveService } from './live-service.ts'
import { failureOf } from './run.ts'

const live = liveService()
const { home } = live

const acme = (args: string[], env: Record<string, string> = {}) =>
  home.run(args, { env: { SVC_URL: live.service.url, SVC_TOKEN: live.world.tokens.acme, ...env } })

const hooks = (more = '') => `webhooks:
  - org: bakery
    name: Tickets
    url: https://93.184.215.14/in?key=\${file:key.txt}
    secret: \${env:SVC_CONFIG_SECRET}
    events: [device.enrolled]
${more}`
const secret = { SVC_CONFIG_SECRET: 's-e-c-r-e-t' }

describe('svc config plan --without-secrets', () => {
  const path = home.write('hooks.yaml', hooks())
  const flags = ['--set', 'hooks', '--without-secrets']
  const said = [
    `Not compared: webhooks bakery / Tickets: url (\${file:key.txt})`,
    `Not compared: webhooks bakery / Tickets: secret (\${env:SVC_CONFIG_SECRET})`,
  ]

  it('needs no secret, and says what it does not compare, in every format', async () => {
    const refused = await acme(['config', 'plan', path, '--set', 'hooks'])
    expect([refused.code, refused.stderr]).toEqual([
      2,
      expect.stringContaining('SVC_CONFIG_SECRET is not set'),
    ])
    const plan = await acme(['config', 'plan', path, ...flags])
    expect(plan).toMatchObject({
      code: 0,
      stdout:
        'webhooks\n  + bakery / Tickets\n      url: not compared\n      secret: not compared\nSet hooks: 1 to create\n',
    })
    expect(plan.stderr.trimEnd().split('\n')).toEqual(said)
    const json = await acme(['config', 'plan', path, ...flags, '--json'])
    const { notCompared } = JSON.parse(json.stdout) as { notCompared: object[] }
    const about = { section: 'webhooks', org: 'bakery', name: 'Tickets' }
    expect(notCompared).toEqual([
      { ...about, field: 'url', variables: [`\${file:key.txt}`] },
      { ...about, field: 'secret', variables: [`\${env:SVC_CONFIG_SECRET}`] },
    ])
    const markdown = await acme(['config', 'plan', path, ...flags, '--markdown'])
    for (const line of said)
      expect(markdown.stdout).toContain(`- not compared: \`${line.slice('Not compared: '.length)}\``)
  })

  it('compares what can be read, as svc config diff does', async () => {
    home.write('key.txt', 'k-e-y')
    expect((await acme(['config', 'apply', path, '--set', 'hooks', '--yes'], secret)).code).toBe(0)
    const same = await acme(['config', 'diff', path, ...flags])
    expect(same).toMatchObject({ code: 0, stdout: 'Set hooks: no changes\n', stderr: `${said[1]}\n` })
    const whole = await acme(['config', 'diff', path, ...flags], secret)
    expect(whole).toMatchObject({ code: 0, stdout: 'Set hooks: no changes\n', stderr: '' })
    const other = await acme(['config', 'diff', path, ...flags], { SVC_CONFIG_SECRET: 'new' })
    expect([other.code, other.stdout]).toEqual([
      1,
      expect.stringContaining(`secret: (from \${env:SVC_CONFIG_SECRET})`),
    ])
  })

  it('still needs what is no secret, and what files may not read', async () => {
    const open = home.write('open.yaml', hooks(`    status: \${env:SVC_CONFIG_STATUS}\n`))
    expect((await acme(['config', 'plan', open, ...flags])).stderr).toContain('SVC_CONFIG_STATUS is not set')
    const closed = home.write('closed.yaml', hooks().replace('SVC_CONFIG_SECRET', 'HOOK_SECRET'))
    expect((await acme(['config', 'plan', closed, ...flags])).stderr).toContain(
      'HOOK_SECRET is closed to files',
    )
    const outside = home.write('outside.yaml', hooks().replace('key.txt', '../key.txt'))
    expect((await acme(['config', 'plan', outside, ...flags])).stderr).toContain('is not in the folder')
  })

  it('cannot be saved, nor applied', async () => {
    const out = join(home.path, 'plan.json')
    const saved = await acme(['config', 'plan', path, ...flags, '--out', out])
    expect([saved.code, saved.stderr]).toEqual([
      2,
      expect.stringContaining('A plan without secrets cannot be saved'),
    ])
    expect(existsSync(out)).toBe(false)
    const applied = await acme(['config', 'apply', path, ...flags, '--yes', '--json'], secret)
    expect([applied.code, failureOf(applied).message]).toEqual([
      2,
      expect.stringContaining('--without-secrets'),
    ])
  })
})
