import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { categoryOf, complianceEvents, securityEvents } from '../../src/audit/rules.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { specActions } from '../laws/spec-actions.ts'

/** Of an operation that this product does not have yet, or that comes from records it does not run. */
const later: Readonly<Record<string, string>> = {
  'policy.create': 'policies',
  'policy.update': 'policies',
  'policy.evaluate': 'policies',
  'automation.policy.evaluate': 'automation',
  'script.execute': 'commands of devices',
  'user.permission.change': 'said as user.role.assign and role.update, the names of the operations',
}

/** Told beside the entry of a call, with the test that shows it. */
const beside: Readonly<Record<string, string>> = {
  'user.login.failed': 'test/daemon/auth.test.ts',
  'agent.source.ip.changed': 'test/agents/addresses.test.ts',
}

/** What the operations are called here, where the spec names a consequence. */
const under: Readonly<Record<string, string>> = {
  'device.create': 'agent.enroll',
}

const emitted = new Map(
  entriesOf(api).flatMap(({ entry: { audit, method, path } }) =>
    audit && 'action' in audit ? [[`${method} ${path}`, audit.action] as const] : [],
  ),
)

const actions = [...new Set([...Object.values(specActions), ...securityEvents, ...complianceEvents])]

it.each(actions)('%s is told by an operation, or belongs to one that comes later', (action) => {
  const by = [...emitted].filter(([, one]) => one === (under[action] ?? action)).map(([route]) => route)
  const places = [by.length > 0, action in beside, action in later].filter(Boolean)
  expect(places, `${action}: ${by.join(', ')}`).toHaveLength(1)
})

it.each([
  ['user.login', 'authentication'],
  ['user.login.failed', 'authentication'],
  ['user.logout', 'authentication'],
  ['user.permission.change', 'authentication'],
  ['device.delete', 'device'],
  ['script.create', 'automation'],
  ['policy.update', 'policy'],
  ['automation.policy.evaluate', 'policy'],
  ['alert.create', 'alert'],
  ['data.access', 'compliance'],
  ['organization.update', 'organization'],
  ['user.invite', 'system'],
  ['agent.eventlogs.submit', 'system'],
])('%s is of the category %s', (action, category) => {
  expect(categoryOf(action)).toBe(category)
})
