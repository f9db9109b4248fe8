import type { Endpoint } from '../core/endpoint.ts'
import { invitations } from '../identity/invitations/contract.ts'
import { checkAccessFields } from '../identity/users/access.ts'
import { type AccessChange, people } from '../identity/users/contract.ts'
import type { MembershipRecord } from '../identity/users/rules.ts'
import type { StoredObject } from './rules.ts'

/** What the endpoints of memberships say of the fields of a body, before they look at the accounts of others. @throws invalid_request */
export function checkMembershipFields(
  entry: Endpoint,
  body: unknown,
  stored: StoredObject | undefined,
): void {
  if (entry === invitations.invite) {
    const { orgId, orgAccess, orgIds, siteIds, deviceGroupIds } = body as AccessChange & { orgId?: string }
    const wanted = { orgAccess, orgIds, siteIds, deviceGroupIds }
    checkAccessFields(orgId === undefined ? 'partner' : 'organization', wanted, nothing)
  } else if (entry === people.changeAccess && stored) {
    const kind = stored.orgId === null ? 'partner' : 'organization'
    checkAccessFields(kind, body as AccessChange, stored.record as Reach)
  }
}

type Reach = Pick<MembershipRecord, 'orgAccess' | 'orgIds'>

const nothing: Reach = { orgAccess: 'none', orgIds: null }
