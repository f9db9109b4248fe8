import { command } from '../src/cli/command.ts'
import { formatVerdict, isAllowed, withRouteHint } from '../src/cli/roles.ts'
import { permissions } from '../src/identity/permissions/contract.ts'

export default command(permissions.explain, {
  args: ['method', 'path'],
  format: formatVerdict,
  isSuccess: isAllowed,
  mapError: withRouteHint,
  description:
    'Makes the decision that the request would get, without checking access to particular records. Exits with 0 when it is allowed and 1 when not. Questions about others need users:read.',
  examples: [
    'svc explain POST /enrollment-keys\nno: It needs a session with a verified second factor (403 mfa_required)\nhint: sign in again with a code: svc login',
    'svc explain GET /devices --as 0197c1c3-5e44-7a1b-8c30-2d4e6f8a0b11',
    'svc explain DELETE /roles/:id --as-role "Org Viewer" --org blue-bakery --json',
  ],
})
