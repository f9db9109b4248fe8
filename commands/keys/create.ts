import { command } from '../../src/cli/command.ts'
import { apiKeys } from '../../src/credentials/api-keys/contract.ts'

export default command(apiKeys.create, {
  secret: 'key',
  mints: { flag: 'scope', by: 'key' },
  existing: { list: apiKeys.list, within: ['orgId'], query: { status: 'active' } },
  description:
    'The key is displayed only once: alone on standard output, so that it can be piped to a secret store. Set SVC_API_KEY to use it with svc; other programs send it in the header X-API-Key.',
  examples: [
    'svc keys create --org blue-bakery --name ci --scope devices:read 2>/dev/null\nsvc_Hq3vT9xAq0Zr5mW1uYc7dEfGhJkLnPpS',
    'svc keys create --name ci --scope devices:read,alerts:read --rate-limit 5000 --out-file ci.key',
    'svc keys create --name report --scope devices:read --expires-at 90d --json',
    'curl -H "X-API-Key: $(cat ci.key)" "$SVC_URL/api/v1/devices"',
  ],
})
