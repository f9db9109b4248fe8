import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { durablePayloads, NewOutcome } from '../../src/agents/commands/contract.ts'
import { Enrollment, Heartbeat, HeartbeatReply } from '../../src/agents/contract.ts'
import { api } from '../../src/api.ts'
import { type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import { errors } from '../../src/core/errors.ts'
import { AgentFrame, closings } from '../../src/live/wire/contract.ts'

const page = readFileSync(new URL('../../man/svc-agent.7.md', import.meta.url), 'utf8')
const protocol = page.slice(page.indexOf('## Protocol'), page.indexOf('## Releases'))
const section = (title: string): string => protocol.split(/^### /m).find((one) => one.startsWith(title)) ?? ''
const rowsOf = (text: string): string[][] =>
  [...text.matchAll(/^\| (.*) \|$/gm)].map(([, row = '']) => row.split(' | ').map((cell) => cell.trim()))
const named = (text: string): string[] => [...text.matchAll(/`(\w+)`/g)].map(([, name = '']) => name)

const isAgents = ({ method, path, access }: Endpoint): boolean =>
  access.who === 'agent' ||
  (access.who === 'public' && /^POST \/agents\/(?!enroll)/.test(`${method} ${path}`))
const routes = entriesOf(api).filter(({ entry }) => isAgents(entry))

describe('the protocol in man/svc-agent.7', () => {
  it('lists every agent route, and who may call it', () => {
    const listed = rowsOf(section('Tokens')).filter(([route]) =>
      /^(GET|POST|PUT) \/agents\//.test(route ?? ''),
    )
    const documented = listed.map(([route, agent, watchdog]) => [route, agent, watchdog!.startsWith('yes')])
    const real = routes.map(({ entry: { method, path, access } }) => [
      `${method} ${path.replace(':id', 'ID').replace(':commandId', 'COMMAND')}`,
      access.who === 'agent' ? 'yes' : 'without a token',
      access.who === 'agent' && access.watchdog === true,
    ])
    expect(documented.map(String).sort()).toEqual(real.map(String).sort())
  })

  it('lists every field, and no other', () => {
    const fields = (title: string) => named(section(title))
    const enrolling = rowsOf(section('Enrolling')).flatMap(([names = '']) => names.split(', '))
    for (const field of Object.keys(Enrollment.shape)) expect(enrolling).toContain(field)
    const beats = section('Heartbeats')
    for (const field of Object.keys(Heartbeat.shape)) expect(beats).toMatch(new RegExp(`\\b${field}\\b`))
    for (const field of Object.keys(HeartbeatReply.shape)) expect(beats).toMatch(new RegExp(`\\b${field}\\b`))
    const result = section('Commands')
    for (const field of Object.keys(NewOutcome.shape)) expect(result).toMatch(new RegExp(`\\b${field}\\b`))
    for (const type of Object.keys(durablePayloads)) expect(fields('Commands')).toContain(type)
  })

  it('lists every refusal of a rotation, and each is a 409', () => {
    const { rotate, confirm } = api.agentTokens
    const codes = [...rotate.errors, ...confirm.errors].sort()
    const documentedCodes = rowsOf(section('Replacing')).flatMap(([first = '']) => named(first))
    expect(documentedCodes.sort()).toEqual([...new Set(codes)])
    for (const code of documentedCodes) expect(errors[code as keyof typeof errors].status).toBe(409)
  })

  it('names existing errors, with their statuses', () => {
    const known: Record<string, { status: number }> = errors
    for (const [, status = '', list = ''] of protocol.matchAll(/\b(4\d\d),? ((?:`\w+`(?:, | and )?)+)/g)) {
      for (const code of named(list)) expect([code, known[code]?.status]).toEqual([code, Number(status)])
    }
  })

  it('lists every frame of an agent, and every close code', () => {
    const socket = section('The WebSocket')
    for (const option of AgentFrame.options) {
      expect(socket).toContain(`{"type":"${option.shape.type.value}"`)
    }
    const codes = rowsOf(socket).flatMap(([code = '']) => (/^\d{4}$/.test(code) ? [Number(code)] : []))
    const known = Object.values(closings).map(({ code }) => code)
    expect(codes).toEqual(known.sort((a, b) => a - b))
  })
})
