import { describe, expect, it } from 'vitest'
import type { World } from '../world.ts'
import { liveService } from './live-service.ts'
import { failureOf } from './run.ts'

const live = liveService()
const { home } = live

const as =
  (token: keyof World['tokens']) =>
  (...args: string[]) =>
    home.run(args, { env: { SVC_URL: live.service.url, SVC_TOKEN: live.world.tokens[token] } })
const [admin, viewer, system, acme] = [as('bakery'), as('bakeryViewer'), as('system'), as('acme')]
const nightShift = ['--name', 'Night Shift', '--permission', 'devices:read', '--permission', 'alerts:view']

describe('svc roles', () => {
  it('creates, shows, changes, clones and deletes a role by name', async () => {
    const made = await admin('roles', 'create', ...nightShift, '--json')
    expect(made).toMatchObject({ code: 0 })
    const permissions = [
      { resource: 'alerts', action: 'read' },
      { resource: 'devices', action: 'read' },
    ]
    expect(JSON.parse(made.stdout)).toMatchObject({ name: 'Night Shift', permissions, forceMfa: false })
    const again = await admin('roles', 'create', ...nightShift, '--if-not-exists', '-q')
    expect([again.code, again.stdout.trim()]).toEqual([0, JSON.parse(made.stdout).id])

    const lead = ['--parent', 'Night Shift', '--permission', 'sites:update', '--force-mfa']
    expect((await admin('roles', 'create', '--name', 'Lead', ...lead)).code).toBe(0)
    expect((await admin('roles', 'effective', 'lead')).stdout).toBe(
      [
        'Lead',
        '├─ sites:write',
        '└─ inherits from Night Shift',
        '   ├─ alerts:read',
        '   └─ devices:read',
        '',
        'Users of this role have to set up an authenticator first',
        '',
      ].join('\n'),
    )
    const listed = await admin('roles', '--columns', 'name,parentRoleName,isSystem', '--csv', '--no-header')
    expect(listed.stdout).toContain('Lead,Night Shift,false\n')
    expect(listed.stdout).toContain('Org Admin,,true\n')

    expect((await admin('roles', 'clone', 'Lead', '--name', 'Copy', '-q')).code).toBe(0)
    expect((await admin('roles', 'update', 'Lead', '--parent', 'null', '--no-force-mfa')).code).toBe(0)
    const shown = JSON.parse((await admin('roles', 'show', 'Lead', '--json')).stdout)
    expect(shown).toMatchObject({ parentRoleId: null, forceMfa: false })
    for (const name of ['Copy', 'Lead', 'Night Shift']) {
      const removed = await admin('roles', 'delete', name, '--yes')
      expect([name, removed.code, removed.stdout]).toEqual([name, 0, 'Role deleted\n'])
    }
  })

  it('lists permissions, and suggests the one that was meant', async () => {
    const { stdout } = await viewer('roles', 'permissions')
    expect(stdout).toMatch(/^PERMISSION +DESCRIPTION\n/)
    expect(stdout).toMatch(/^devices:execute +Run commands on devices$/m)
    expect(JSON.parse((await viewer('roles', 'permissions', '--json')).stdout).permissions).toHaveLength(29)
    const wrong = await admin('roles', 'create', '--name', 'x', '--permission', 'device:read', '--json')
    expect(wrong.code).toBe(2)
    expect(failureOf(wrong).hint).toBe('did you mean devices:read?')
    expect((await admin('roles', 'available', '--json')).stdout).toContain('"view"')
  })

  it('demands a tenant, and distinguishes roles of the same name', async () => {
    expect((await system('roles')).stdout).toContain('Partner Admin')
    const anywhere = ['--name', 'Anywhere', '--permission', 'audit:read', '--json']
    const lost = await system('roles', 'create', ...anywhere)
    expect(lost.code).toBe(5)
    expect(failureOf(lost)).toMatchObject({
      code: 'tenant_required',
      hint: 'name the tenant: --org ORG or --partner PARTNER',
    })
    expect((await system('roles', '--partner', 'acme')).stdout).toContain('Partner Admin')
    const there = ['--org', 'garage', '--name', 'Auditor', '--permission', 'audit:read']
    expect((await acme('roles', 'create', ...there)).code).toBe(0)
    const both = await acme('roles', 'show', 'Auditor', '--org', 'garage', '--json')
    expect([both.code, failureOf(both).code]).toEqual([2, 'ambiguous'])
    expect(failureOf(both).message).toMatch(
      /^"Auditor" is the name of 2 roles:\n {2}\S{36} {2}Auditor\n {2}\S{36} {2}Auditor {2}\(in garage\)$/,
    )
    const holders = await acme('roles', 'users', 'Org Admin', '--org', 'garage', '--columns', 'name')
    expect(holders.stdout).toBe('NAME\ngarage-admin\n')
  })

  it('explains why a role cannot be deleted', async () => {
    const held = await admin('roles', 'delete', 'Org Viewer', '--yes', '--json')
    expect([held.code, failureOf(held).message]).toEqual([5, 'Cannot delete system roles'])
  })
})

describe('svc can-i', () => {
  it('exits with 0 for yes and 1 for no, and explains the answer', async () => {
    expect(await viewer('can-i', 'read', 'devices')).toMatchObject({
      code: 0,
      stdout: 'yes: The role "Org Viewer" grants devices:read\n',
      stderr: '',
    })
    const no = await viewer('can-i', 'update', 'devices')
    expect(no.code).toBe(1)
    expect(no.stdout).toMatch(
      /^no: Neither the role "Org Viewer" nor one it inherits from grants devices:write/,
    )
    const json = await viewer('can-i', 'write', 'devices', '--json')
    expect([json.code, json.stderr]).toEqual([1, ''])
    expect(JSON.parse(json.stdout)).toMatchObject({ allowed: false, status: 403, code: 'forbidden' })
  })

  it('takes a permission as one word', async () => {
    const two = await viewer('can-i', 'read', 'devices')
    expect(await viewer('can-i', 'devices:read')).toMatchObject({ code: 0, stdout: two.stdout, stderr: '' })
    expect((await viewer('can-i', 'devices:write')).code).toBe(1)
    const lone = await viewer('can-i', 'read', '--json')
    expect([lone.code, failureOf(lone).message]).toEqual([2, 'Missing RESOURCE'])
    const wrong = await viewer('can-i', 'device:read', '--json')
    expect([wrong.code, failureOf(wrong).hint]).toEqual([2, 'did you mean devices?'])
    expect((await viewer('can-i')).stderr).toContain('Missing ACTION')
  })

  it('answers for another role, and suggests corrections', async () => {
    expect((await admin('can-i', 'write', 'devices', '--as-role', 'Org Technician')).code).toBe(0)
    expect((await admin('can-i', 'delete', 'devices', '--as-role', 'Org Technician')).code).toBe(1)
    const wrong = await admin('can-i', 'raed', 'devices', '--json')
    expect([wrong.code, failureOf(wrong).hint]).toEqual([2, 'did you mean read?'])
    expect((await viewer('can-i', 'read', 'devices', '--as-role', 'Org Admin')).code).toBe(5)
  })
})

describe('svc explain', () => {
  it('explains why a request is allowed or refused', async () => {
    expect((await admin('explain', 'get', '/devices/0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11')).code).toBe(0)
    const no = await admin('explain', 'GET', '/orgs/partners')
    expect(no.code).toBe(1)
    expect(no.stdout).toBe(
      'no: It is for system scope, and this is organization scope (403 scope_not_allowed)\nhint: sign in with another membership: svc login --partner P or --org O\n',
    )
    const role = await admin('explain', 'POST', '/roles', '--as-role', 'Org Viewer', '--json')
    expect([role.code, JSON.parse(role.stdout).permission]).toEqual([1, 'users:write'])
  })

  it('suggests the route that was meant', async () => {
    const typo = await admin('explain', 'GET', '/devcies', '--json')
    expect([typo.code, failureOf(typo).hint]).toEqual([3, 'did you mean GET /devices?'])
    const method = await admin('explain', 'DELETE', '/devices', '--json')
    expect([method.code, failureOf(method).hint]).toEqual([3, 'there is GET /devices'])
  })
})
