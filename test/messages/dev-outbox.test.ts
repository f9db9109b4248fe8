import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { outboxMailer } from '../../daemon/integrations/development.ts'
import { invitation, passwordReset } from '../../src/messages/templates.ts'
import { Home } from '../cli/run.ts'
import { testClock } from '../harness.ts'

const url = 'https://svc.example.com/reset-password?token=abc'

async function filled() {
  const home = new Home()
  onTestFinished(() => home.remove())
  const dataDir = join(home.path, 'data')
  const clock = testClock()
  const mailer = outboxMailer(dataDir, clock)
  await mailer.send(passwordReset({ to: 'alice@acme.test', name: 'Alice', url, minutes: 60 }), 'm1')
  clock.forward(60)
  const invited = { to: 'bob@acme.test', name: '\u001b[31mBob', inviter: 'Alice', tenant: 'Acme' }
  await mailer.send(invitation({ ...invited, url: `${url}d`, days: 7 }), 'm2')
  return {
    dataDir,
    outbox: (...args: string[]) => home.run(['dev', 'outbox', '--data-dir', dataDir, ...args]),
  }
}

it('svc dev outbox lists sent messages, newest first, with their links', async () => {
  const { outbox } = await filled()
  const { stdout, stderr, code } = await outbox()
  expect({ stderr, code }).toEqual({ stderr: '', code: 0 })
  const [head, ...rows] = stdout.trimEnd().split('\n')
  expect(head).toMatch(/^AT +TO +KIND +SUBJECT +LINK$/)
  expect(rows).toEqual([
    expect.stringMatching(/^2026-03-01T12:01:00.000Z +bob@acme.test +invitation .*token=abcd$/),
    expect.stringMatching(/^2026-03-01T12:00:00.000Z +alice@acme.test +password-reset .*token=abc$/),
  ])
})

it('svc dev outbox supports every output format, and filters', async () => {
  const { outbox } = await filled()
  const all = JSON.parse((await outbox('--json')).stdout)
  expect(all.data).toMatchObject([{ id: 'm2' }, { id: 'm1', to: 'alice@acme.test', link: url, links: [url] }])
  expect((await outbox('-q')).stdout).toBe('m2\nm1\n')
  expect((await outbox('--to', 'ALICE@acme.test', '-q')).stdout).toBe('m1\n')
  expect((await outbox('--kind', 'invitation', '-q')).stdout).toBe('m2\n')
  expect(
    (await outbox('--csv', '--no-header', '--columns', 'to,link', '--to', 'alice@acme.test')).stdout,
  ).toBe(`alice@acme.test,${url}\n`)
  expect((await outbox('--kind', 'password-reset', '--latest', '--jq', '.link')).stdout).toBe(`${url}\n`)
})

it('svc dev outbox --latest shows one message as text, without control sequences', async () => {
  const { outbox } = await filled()
  const { stdout } = await outbox('--latest')
  expect(stdout).toMatch(
    /^To: bob@acme.test\nAt: 2026-03-01T12:01:00.000Z\nSubject: Alice invites you to Acme\n\nHello /,
  )
  expect(stdout).toContain(`Accept the invitation:\n${url}d\n`)
  expect(stdout).not.toContain('\u001b')
})

it('svc dev outbox --latest exits with 3 when nothing matches; an empty list is empty', async () => {
  const { outbox } = await filled()
  const { code, stderr } = await outbox('--latest', '--to', 'nobody@acme.test')
  expect({ code, stderr }).toEqual({ code: 3, stderr: 'Error: There is no such message in the outbox\n' })
  expect((await outbox('--json', '--to', 'nobody@acme.test')).stdout).toBe('{\n  "data": []\n}\n')
})
