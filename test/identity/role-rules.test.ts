import { describe, expect, it } from 'vitest'
import { type Access, userAccess } from '../../src/core/endpoint.ts'
import { permissionOf } from '../../src/core/permissions.ts'
import { findRoute } from '../../src/core/routes.ts'
import { organizationScope } from '../../src/core/scope.ts'
import {
  buildChain,
  changesAccess,
  cloneDescription,
  findGrantSource,
  type RoleChain,
  type RoleNode,
  toEffectivePermissions,
} from '../../src/identity/roles/rules.ts'
import { type AccessSubject, decideAccess, isFullAdmin } from '../../src/identity/rules.ts'

const link = (id: string, granted: string[] = [], more: Partial<RoleNode> = {}): RoleNode => ({
  id,
  name: id,
  parentRoleId: null,
  forceMfa: false,
  permissions: granted,
  ...more,
})

describe('a resource and an action', () => {
  it.each([
    ['devices', 'view', 'devices:read'],
    ['devices', 'create', 'devices:write'],
    ['sites', 'update', 'sites:write'],
    ['scripts', 'delete', 'scripts:delete'],
    ['devices', 'execute', 'devices:execute'],
    ['alerts', 'acknowledge', 'alerts:acknowledge'],
    ['*', '*', '*:*'],
    ['remote', 'view', undefined],
    ['alerts', 'delete', undefined],
    ['devices', '*', undefined],
    ['devices', 'constructor', undefined],
    ['billing', 'view', undefined],
  ])('%s %s form the permission %s', (resource, action, permission) => {
    expect(permissionOf({ resource, action })).toBe(permission)
  })
})

describe('a full administrator', () => {
  it.each([
    ['partner', ['*:*'], true],
    ['partner', ['users:write', 'users:read'], false],
    ['organization', ['*:*'], true],
    ['organization', ['users:write'], true],
    ['organization', ['users:*'], true],
    ['organization', ['users:read', 'users:invite'], false],
  ] as const)('of a %s with %j: %s', (kind, granted, is) => {
    expect(isFullAdmin(kind, new Set(granted))).toBe(is)
  })
})

describe('the description of a clone', () => {
  it('names the source, cut to a length that can be stored', () => {
    expect(cloneDescription({ name: 'A', description: null })).toBe('Cloned from A')
    for (const name of ['A', 'AB']) {
      const long = cloneDescription({ name, description: '🐝'.repeat(500) })
      expect([long.length <= 1000, long.isWellFormed()]).toEqual([true, true])
    }
  })
})

describe('a role chain', () => {
  const top = link('top', ['devices:read', '*:write'])
  const chain: RoleChain = [link('low', ['sites:read', 'devices:read'], { parentRoleId: 'top' }), top]

  it('names the nearest role when several grant a permission', () => {
    expect(
      toEffectivePermissions(chain).permissions.map(
        (one) => `${one.resource}:${one.action} ${one.sourceRoleId}`,
      ),
    ).toEqual(['*:write top', 'devices:read low', 'sites:read low'])
    expect(findGrantSource(chain, 'devices:read')?.link.id).toBe('low')
    expect(findGrantSource(chain, 'sites:write')).toMatchObject({
      link: { id: 'top' },
      permission: '*:write',
    })
    expect(findGrantSource(chain, 'alerts:read')).toBeUndefined()
  })

  it('refuses to become circular', () => {
    expect(() => buildChain(top, chain, [])).toThrow('would create circular inheritance')
    expect(() => buildChain(top, [top], [])).toThrow('would create circular inheritance')
    expect(buildChain(top, undefined, [])).toEqual([top])
  })

  it('includes the depth below a role when the role gets another parent', () => {
    const tall = (n: number): RoleChain =>
      Array.from({ length: n }, (_, i) => link(`t${i}`)) as unknown as RoleChain
    const below = Array.from({ length: 5 }, (_, i) => ({
      id: i === 0 ? 'top' : `b${i}`,
      parentRoleId: i === 0 ? null : i === 1 ? 'top' : `b${i - 1}`,
    }))
    expect(buildChain(top, tall(15), below)).toHaveLength(16)
    expect(() => buildChain(top, tall(16), below)).toThrow('at most 20 levels')
  })
})

describe('a role change', () => {
  it.each<[Partial<RoleNode>, boolean]>([
    [{ name: 'other' }, false],
    [{ permissions: ['b', 'a'] }, false],
    [{ permissions: ['a'] }, true],
    [{ forceMfa: true }, true],
    [{ parentRoleId: 'x' }, true],
  ])('%j changes access: %s', (change, is) => {
    const role = link('r', ['a', 'b'])
    expect(changesAccess(role, { ...role, ...change })).toBe(is)
  })
})

describe('an access decision', () => {
  const admin: AccessSubject & { kind: 'user' } = {
    kind: 'user',
    scope: { kind: 'partner', partnerId: 'p', orgs: 'all' },
    permissions: new Set(['users:read']),
    mfa: true,
    mfaEnabled: true,
    mfaDemanded: false,
  }
  const reads = userAccess({ permission: 'users:read', wholePartner: true, mfa: true })
  const takesKeys = userAccess({ permission: 'users:read', key: true })
  const key = (...scopes: string[]): AccessSubject => ({
    kind: 'api_key',
    scope: organizationScope('o'),
    permissions: new Set(scopes),
  })
  const workload = (...names: string[]): AccessSubject => ({
    kind: 'workload',
    scope: organizationScope('o'),
    permissions: new Set(names),
  })
  const takesWorkloads = userAccess({ permission: 'users:read', mfa: true, workload: true })
  const of = (subject: AccessSubject, access: Access = reads, mfaOn = true) => {
    const verdict = decideAccess(access, subject, mfaOn)
    return verdict.allowed ? 'allowed' : verdict.code
  }
  const withoutFactor = { ...admin, mfa: false, mfaEnabled: false, mfaDemanded: true }
  const some = { kind: 'partner', partnerId: 'p', orgs: ['o'] } as const

  it.each<[string, string, string]>([
    ['a user with the permission', of(admin), 'allowed'],
    ['nobody', of({ kind: 'nobody' }), 'unauthenticated'],
    ['an agent', of({ kind: 'agent' }), 'invalid_token'],
    ['an agent, at its own routes', of({ kind: 'agent' }, { who: 'agent' } as never), 'allowed'],
    ['a user, at the routes of agents', of(admin, { who: 'agent' } as never), 'invalid_agent_credentials'],
    ['nobody, at a public route', of({ kind: 'nobody' }, { who: 'public' } as never), 'allowed'],
    [
      'a disabled account before all else',
      of({ ...withoutFactor, barred: 'account_inactive' }),
      'account_inactive',
    ],
    [
      'a user who must enroll a factor, before the permission check',
      of({ ...withoutFactor, permissions: new Set() }),
      'mfa_enrollment_required',
    ],
    [
      'the same user at a route of the enrollment',
      of(withoutFactor, userAccess({ whileEnrolling: true })),
      'allowed',
    ],
    ['the wrong scope', of(admin, userAccess({ scopes: ['system'] })), 'scope_not_allowed'],
    ['a missing permission', of({ ...admin, permissions: new Set(['users:write']) }), 'forbidden'],
    ['a wildcard', of({ ...admin, permissions: new Set(['*:read']) }), 'allowed'],
    ['partial access to a partner', of({ ...admin, scope: some }), 'partner_access_limited'],
    [
      'partial access to a partner without the permission',
      of({ ...admin, scope: some, permissions: new Set() }),
      'forbidden',
    ],
    ['a session without a factor', of({ ...admin, mfa: false }), 'mfa_required'],
    ['a key, where keys are not accepted', of(key()), 'unauthenticated'],
    ['a key without the scope', of(key('devices:read'), takesKeys), 'api_key_scope'],
    ['a key with the scope', of(key('users:read'), takesKeys), 'allowed'],
    ['a key with the wildcard', of(key('*:*'), takesKeys), 'allowed'],
    ['a key, where no permission is needed', of(key(), userAccess({ key: true })), 'allowed'],
    [
      'a key, beyond its organization',
      of(key(), userAccess({ key: true, scopes: ['system'] })),
      'scope_not_allowed',
    ],
    ['a workload with the permission', of(workload('users:read'), takesKeys), 'allowed'],
    ['a workload without the permission', of(workload('devices:read'), takesKeys), 'forbidden'],
    ['a workload, where workloads are accepted', of(workload('users:read'), takesWorkloads), 'allowed'],
    ['a key, where only workloads are accepted', of(key('users:read'), takesWorkloads), 'unauthenticated'],
    [
      'a workload, where workloads are accepted in files alone',
      of(workload('users:read'), userAccess({ permission: 'users:read', workload: 'files' })),
      'forbidden',
    ],
    ['a workload, where keys are not accepted', of(workload('users:read')), 'forbidden'],
    [
      'a workload, where no permission is needed',
      of(workload('users:read'), userAccess({ key: true })),
      'forbidden',
    ],
    [
      'a workload, at the routes of agents',
      of(workload(), { who: 'agent' } as never),
      'invalid_agent_credentials',
    ],
    [
      'a workload, beyond its organization',
      of(workload('users:read'), userAccess({ permission: 'users:read', key: true, scopes: ['system'] })),
      'scope_not_allowed',
    ],
    ['anyone without a factor, where 2FA is off', of(withoutFactor, reads, false), 'allowed'],
  ])('on %s', (_, said, expected) => {
    expect(said).toBe(expected)
  })
})

describe('a route', () => {
  const entries = ['/a/:id', '/a/b', '/a/:id/c', '/a/b/:x', '/'].map((path) => ({
    name: path,
    entry: { method: 'GET', path } as never,
  }))
  it.each([
    ['/a/b', '/a/b'],
    ['/a/x', '/a/:id'],
    ['/a/:id', '/a/:id'],
    ['a/x/', '/a/:id'],
    ['https://svc.example.com/api/v1/a/x?y=1#z', '/a/:id'],
    ['/a/b/c', '/a/b/:x'],
    ['/a/x/c', '/a/:id/c'],
    ['/', '/'],
    ['/api/v1', '/'],
    ['/a', undefined],
    ['/a/x/d', undefined],
    ['/apiary', undefined],
  ])('%s is found as %s', (written, found) => {
    expect(findRoute(entries, 'GET', written)?.name).toBe(found)
    expect(findRoute(entries, 'POST', written)).toBeUndefined()
  })
})
