import { command } from '../../src/cli/command.ts'
import { roles } from '../../src/identity/roles/contract.ts'

export default command(roles.create, {
  existing: { list: roles.list, within: ['orgId', 'partnerId'] },
  description: 'You can grant only permissions that you have, including inherited ones.',
  examples: [
    'svc roles create --org blue-bakery --name "Night Shift" --permission devices:read,devices:execute -q\n0197c1c8-2b44-7d11-a3c0-5e6f7a8b9c0d',
    'svc roles create --name "Night Shift Lead" --parent "Night Shift" --permission alerts:write --force-mfa',
  ],
})
