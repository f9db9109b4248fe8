import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { idOf, secret, text } from '../../core/schema.ts'

const tag = 'SSO'
const params = z.strictObject({ id: idOf('sso_provider') })

const Step = z.object({
  step: z.string(),
  ok: z.boolean(),
  received: z.string().nullable().describe('Without what opens anything'),
  code: z.string().nullable(),
  hint: z.string().nullable().describe('What mends it'),
})

export const ssoTrials = {
  begin: endpoint({
    method: 'POST',
    path: '/sso/providers/:id/test-logins',
    idempotencyKey: 'honored',
    summary: 'Try an SSO provider, in any status, with a real sign-in that lets nobody in',
    tag,
    access: userAccess({ permission: 'organizations:write', mfa: true }),
    params,
    body: z
      .strictObject({
        redirect: text(500)
          .optional()
          .describe('Where the browser goes on: a path, or a port of this machine'),
      })
      .prefault({}),
    status: 201,
    reply: z.object({
      id: z.guid(),
      loginUrl: secret(z.string()).describe('To be opened in a browser within ten minutes'),
    }),
    audit: { action: 'sso.provider.test_login', resource: 'sso_provider' },
    errors: ['sso_not_configured', 'site_access_denied'],
    example: {},
  }),
  show: endpoint({
    method: 'GET',
    path: '/sso/providers/:id/test-logins/:testId',
    summary: 'What came of a trial of an SSO provider, step by step',
    tag,
    access: userAccess({ permission: 'organizations:write', mfa: true }),
    params: params.extend({ testId: z.guid() }),
    reply: z.object({
      status: z.enum(['pending', 'passed', 'failed']),
      steps: z.array(Step),
    }),
  }),
}
